"""The connection to Redis, and the Valkey that comes with the server. What is kept in Redis is decided elsewhere."""
