"""Copies records that a group gave up on into the topic of its dead letters, and publishes them again."""
