"""Prepares an installation once: Spark's jars, and an archive of the classes it loads. Jobs must run without it too."""
