"""This process: what its children are given of its environment, and which of its threads stand back."""
