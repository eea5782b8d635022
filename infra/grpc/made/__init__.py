"""What `make proto` makes of proto/."""
