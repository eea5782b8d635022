"""Publishing: HTTP, sequencing, the write-ahead log, acknowledgement, flushes into Delta tables.

It imports `infra` alone.
"""
