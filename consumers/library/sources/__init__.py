"""Where a consumer gets its rows: the server, or the files of the table."""
