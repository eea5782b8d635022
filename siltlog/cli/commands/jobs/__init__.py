"""Commands that run jobs on the tables, and show their runs and schedule. What a job does is decided in `pipelines`."""
