"""SQL over the topics without Spark: what a query gives, and DuckDB over the files of the tables."""
