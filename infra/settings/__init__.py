"""The server's settings: their fields, and the file and environment they come from.

They are frozen once read: a component gets its settings as arguments.
"""
