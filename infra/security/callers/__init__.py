"""Finds out who calls: what shows it, and who verifies that."""
