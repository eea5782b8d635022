"""Reading: table and head as one log, polls, consumer groups and their offsets, push, the consumer library.

It imports `infra` alone.
"""
