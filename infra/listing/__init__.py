"""Lists whose order is asked for."""
