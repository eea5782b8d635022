"""What is counted and measured: the catalogue of every series, and where a server keeps them."""
