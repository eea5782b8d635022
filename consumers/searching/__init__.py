"""Searching a topic for records, wherever they lie in its table and head."""
