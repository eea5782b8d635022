"""The OpenAPI document of the HTTP interface, and the page that shows it. Routes describe themselves; it adds none."""
