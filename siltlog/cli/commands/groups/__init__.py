"""Commands that show and change consumer groups. They go through the server and never to Redis."""
