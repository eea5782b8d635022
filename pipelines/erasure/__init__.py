"""Erases every record of a key, wherever it is kept. It needs no Spark."""
