"""Runs the jobs of the schedule when they are due, as child processes. It must not do a job's work itself."""
