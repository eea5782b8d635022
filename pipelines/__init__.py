"""Spark jobs over topic tables: a pure plan, a thin run, and commits through the one door to a table."""
