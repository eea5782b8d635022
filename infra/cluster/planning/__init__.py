"""Plans what the next view says: pure, by the controller."""
