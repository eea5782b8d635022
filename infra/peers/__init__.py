"""Calls from one node to another: who makes them is proven, and they are passed on no further."""
