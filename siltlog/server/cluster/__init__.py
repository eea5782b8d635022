"""This node as a member of a cluster: how it joins, and what it answers about the others."""
