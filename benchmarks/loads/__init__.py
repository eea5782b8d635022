"""What is sent, and who sends it."""
