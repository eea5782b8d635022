"""Keeps, follows and changes who may do what on the server."""
