"""Nodes that share a root."""
