"""The documentation site: made of the pages of `docs/`, what they link to, and references made of the code."""
