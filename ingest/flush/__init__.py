"""Moves records from the write-ahead log into tables. It never appends to the log."""
