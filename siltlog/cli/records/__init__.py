"""Records on the command line: their shapes, formats and places. It publishes nothing itself."""
