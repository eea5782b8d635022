"""Commands that make, show, change and delete topics. They go through the server and never to a table."""
