"""Consumer groups: members, assignments, and offsets that outlive Redis."""
