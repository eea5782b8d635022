"""Replays: publishes a range of a topic again, each record once. Records reach the other topic only through the
server."""
