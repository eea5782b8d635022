"""What Kafka's clients and tools administer: settings, partitions, records, groups."""
