"""Records as they come: bodies in every format become columns, split by partition."""
