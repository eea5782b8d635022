"""Consumer groups: members, assignments, and offsets that outlive Redis.

The state of a group changes only by the scripts in `lua/`.
"""
