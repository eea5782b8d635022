"""Commands: topics."""
