"""The memory of producers: sequences, epochs, idempotency keys. It tells duplicates and assigns offsets.

`objects` alone does IO.
"""
