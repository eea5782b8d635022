"""Arrow arrays made from buffers, and columns in pieces."""
