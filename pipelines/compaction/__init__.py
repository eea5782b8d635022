"""File and key compaction."""
