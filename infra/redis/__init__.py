"""Redis: the connection, and the Valkey that comes with the server."""
