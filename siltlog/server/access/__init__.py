"""Who may do what, as the server keeps, follows and changes it."""
