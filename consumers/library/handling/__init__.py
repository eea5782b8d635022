"""Records through a handler: lanes, attempts, workers, and the runs that join them."""
