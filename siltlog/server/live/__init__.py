"""What a server does at this moment, for who watches it."""
