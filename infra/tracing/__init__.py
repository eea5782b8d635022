"""Traces by OpenTelemetry, where `SILT_TRACES` is on. Without, `opening` alone is imported, and none of that."""
