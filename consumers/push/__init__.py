"""Pushes records to event streams and WebSockets. The log is its only buffer: it holds nothing for a slow client."""
