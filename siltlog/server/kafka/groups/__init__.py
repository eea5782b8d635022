"""What Kafka's clients ask of groups as their members, and how far those are."""
