"""Reads of the head and of tables."""
