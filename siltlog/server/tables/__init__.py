"""How a topic's table is doing, and the files it has."""
