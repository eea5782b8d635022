"""Starts a node: it reads what its WAL holds, and takes the topics that go on here."""
