"""The service silt.v1: what its messages ask of the HTTP API, and what that answers as messages. Imported where
`SILT_GRPC_LISTEN` says so, and nowhere else.
"""
