"""Kafka's protocol at a listener of its own: nothing of it is imported where nobody asks for it."""
