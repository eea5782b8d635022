"""Arrow arrays made from buffers, and columns in pieces. The client has it too, so nothing of the server lies here."""
