"""A release: distributions, built twice alike; what is in them; what a version must have before it goes out."""
