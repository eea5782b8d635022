"""Bodies of requests as clients write them: rows of Arrow and of JSON, and long files in chunks."""
