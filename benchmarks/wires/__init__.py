"""What other brokers speak, as far as a load needs it: requests made beforehand, and where a reply ends."""
