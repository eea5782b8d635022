"""The start of a node: what the WAL and the tables say together."""
