"""Records that a group gave up on."""
