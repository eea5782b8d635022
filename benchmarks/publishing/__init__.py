"""Durable publishes over HTTP and by the producer library."""
