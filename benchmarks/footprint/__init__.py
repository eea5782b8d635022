"""What a program, a page and a server take."""
