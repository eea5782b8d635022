"""Consumer groups: members, assignments and offsets.

The state of a group changes only by the scripts in `lua/`.
"""
