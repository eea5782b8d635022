"""From the write-ahead log into tables."""
