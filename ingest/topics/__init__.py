"""Opens, makes, changes and deletes topics. Records are appended elsewhere."""
