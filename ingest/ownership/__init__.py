"""The right to append to a topic: taking one with what the WAL knew of it, holding it, letting it go for another."""
