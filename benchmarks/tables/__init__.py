"""How records settle in Delta tables, and what their logs cost."""
