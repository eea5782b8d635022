"""Publish: HTTP, sequencing, the write-ahead log, acknowledgement, micro-batches into Delta."""
