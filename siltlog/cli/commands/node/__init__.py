"""Commands for a server and its machine: start it, look at it, measure it. They change no record of a user."""
