"""The same work by other protocols: gRPC, Kafka, TLS."""
