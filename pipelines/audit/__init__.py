"""Audit: everything that is stored is read and proved."""
