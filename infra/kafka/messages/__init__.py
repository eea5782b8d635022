"""Tables of Kafka's messages by version, and what reads and writes bytes by them."""
