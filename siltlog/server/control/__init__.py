"""What operators have a running server do: be drained, and be profiled."""
