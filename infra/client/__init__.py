"""The HTTP client: a core without IO, its transport, and the producer and admin built on them."""
