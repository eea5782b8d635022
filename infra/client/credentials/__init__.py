"""Who a client is, and which server it believes: tokens, certificates, where they are found, what carries them."""
