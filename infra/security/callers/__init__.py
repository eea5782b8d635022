"""Who calls: what shows it, and who verifies that."""
