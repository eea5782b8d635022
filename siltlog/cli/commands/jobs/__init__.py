"""Commands: jobs."""
