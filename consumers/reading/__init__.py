"""Reading: table and head as one, in the form that was asked for."""
