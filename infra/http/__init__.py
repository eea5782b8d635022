"""The edge of the server: admission, requests, replies and streams, whatever the route."""
