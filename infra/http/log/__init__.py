"""What the log says of requests."""
