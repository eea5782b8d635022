"""Starts a node: it compares what the WAL and the tables say, and decides where each topic goes on."""
