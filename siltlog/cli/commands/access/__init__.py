"""Commands that say and change who may do what."""
