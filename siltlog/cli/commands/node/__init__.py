"""Commands: node."""
