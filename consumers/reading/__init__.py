"""Reads table and head as one, and renders the records in the form that was asked for. It knows nothing of groups."""
