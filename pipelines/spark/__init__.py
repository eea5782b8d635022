"""Spark sessions: jars, Java, SQL over the topics."""
