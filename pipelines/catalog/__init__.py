"""Tables told to catalogs, where Athena, Trino, Spark and others find them by name."""
