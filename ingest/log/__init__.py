"""The log in memory: topics, partitions, their heads, group commit. The event loop alone may change it."""
