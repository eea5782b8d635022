"""Nodes that share a root: what they say of themselves, and the views that say what each is to own."""
