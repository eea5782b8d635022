"""The one door to a Delta table: what is in it, and every commit to it."""
