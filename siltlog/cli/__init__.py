"""The command line: `silt`."""
