"""Retention and vacuum."""
