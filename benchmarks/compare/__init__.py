"""Siltlog and other systems at the same work, on this machine."""
