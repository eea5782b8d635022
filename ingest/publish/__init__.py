"""Publishing from the outside: over HTTP, on the fast path, and from within the server.

Only `http`, `producers_http` and `fast` may know a web framework.
"""
