"""The one door to a Delta table: it reads a table and makes every commit to it. Nothing else may write into a log."""
