"""Export to files."""
