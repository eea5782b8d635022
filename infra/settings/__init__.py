"""Settings: their fields, and the file and the environment they come from."""
