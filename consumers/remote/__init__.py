"""Topics of other nodes as this node reads them: the table by itself, and what is not in it yet from their owners."""
