"""The ground every room stands on: names, schema, settings, errors, clock, object store, table, Redis, telemetry."""
