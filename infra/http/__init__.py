"""The edge of the server: admission, limits, requests, replies and streams, whatever the route.

It must not reach the stores, the tables or Redis.
"""
