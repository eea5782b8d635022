"""The HTTP client: calls without IO, a transport for threads and one for tasks, and the admin clients.

It is part of the base install: it must not need a package of the server, or Spark.
"""
