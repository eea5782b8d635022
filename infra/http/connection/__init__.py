"""The connections of the server: what they read, what they send, how long they may stand still."""
