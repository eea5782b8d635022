"""Makes Spark sessions: finds Java and the jars, and shows topics to SQL. It knows nothing of the jobs."""
