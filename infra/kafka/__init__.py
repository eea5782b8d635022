"""Kafka's wire protocol as pure functions: frames, messages, record batches, error codes, its partitioner.

Nothing here does IO. What a stranger sends is bounded by the bytes that are there, and what is wrong with it is one
error, `Malformed` or `Rejected`.
"""
