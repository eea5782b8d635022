"""Calls between servers about what groups commit: one of them keeps it, and the others ask."""
