"""Processes that benchmarks start, and the disk below them."""
