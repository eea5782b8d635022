"""Publishing over HTTP, from the fast path and from within the server."""
