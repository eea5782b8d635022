"""Journals: the numbered objects by which one start of a node makes frames durable in the object store."""
