"""The command line, `silt`. It reads options and prints results; the work is done in the rooms it calls."""
