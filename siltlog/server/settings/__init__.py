"""The settings while a server runs: what holds, how it is changed, and who takes each of them."""
