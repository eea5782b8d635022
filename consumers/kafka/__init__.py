"""Reading by Kafka's protocol: what a fetch finds becomes record batches, times become offsets."""
