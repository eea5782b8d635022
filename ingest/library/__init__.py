"""The producer library: runs in the process of its user, never in the server."""
