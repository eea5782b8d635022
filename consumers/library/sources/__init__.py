"""The sources of a consumer's rows: the server, or the files of the table. They only read, and commit nothing."""
