"""Exports a range of a topic to files. It reads one version of the table and changes nothing of the topic."""
