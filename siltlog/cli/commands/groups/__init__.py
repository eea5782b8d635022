"""Commands: groups."""
