"""Jobs over the tables of topics: a pure plan, a thin run, and commits through the one door to a table.

It imports `infra` alone.
"""
