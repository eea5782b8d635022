"""gRPC: its connections, how a call passes the door, and how errors and records are written. What the messages mean to
the log is in `siltlog/server/grpc`.
"""
