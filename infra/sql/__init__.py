"""What every query by DuckDB has in common, on the command line and at a server: its SQL, and topics as its tables."""
