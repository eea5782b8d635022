"""The server: its parts joined, its drain, what it says of itself."""
