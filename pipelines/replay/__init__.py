"""Replay: a range of a topic published again."""
