"""What is within the text of JSON values."""
