"""The log in memory: topics, partitions, the head, group commit."""
