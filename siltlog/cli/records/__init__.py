"""Records on the command line: their shapes and formats."""
