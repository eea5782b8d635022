"""The connections of the server: what they read, what they send, how long they may stand still.

They hand requests on; what answers a request is given to them from outside.
"""
