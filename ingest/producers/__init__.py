"""What is known of producers: sequences, epochs, idempotency keys."""
