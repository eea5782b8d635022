"""What was done by whom, and whom it was refused: what is recorded, how records are sealed, and how they are told."""
