"""Removes expired records from tables (retention), and files that no snapshot needs (vacuum). It needs no Spark."""
