"""Decides who may reach the server, and by what: pure decisions, and the files of TLS."""
