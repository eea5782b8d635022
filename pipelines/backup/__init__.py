"""Backs topics up, prunes old backups, and restores topics. A restore must not change a topic that is there."""
