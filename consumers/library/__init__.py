"""The consumer library. It runs in the process of its user, and must import nothing of the server."""
