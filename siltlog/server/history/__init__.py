"""The last day of a node's metrics, kept in memory."""
