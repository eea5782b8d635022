"""The commands of the servers that a person logged in to."""
