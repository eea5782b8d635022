"""The demo: a year of flights through the whole system, with the server killed in the middle."""
