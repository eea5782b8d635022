"""Bodies of every format become columns here, and are split by partition. It does no IO and appends nothing."""
