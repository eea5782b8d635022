"""Publishing by Kafka's protocol: batches of producers become bodies of a publish, and their sequences ours."""
