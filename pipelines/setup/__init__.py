"""Made once for an installation: jars, and an archive of classes."""
