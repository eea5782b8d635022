"""The schedule of jobs."""
