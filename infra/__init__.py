"""The ground that all rooms stand on: names, schema, settings, errors, clock, stores, tables, Redis, HTTP, telemetry.

It imports no other room.
"""
