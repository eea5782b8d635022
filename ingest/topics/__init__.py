"""Topics that are opened, made, changed and deleted."""
