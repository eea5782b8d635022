"""Credentials say who a client is and which server it believes: tokens, certificates, and where they are found."""
