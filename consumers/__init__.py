"""Read: table and head as one log, polls, consumer groups and their offsets, the consumer library."""
