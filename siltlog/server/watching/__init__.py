"""What shows others how the server is: the port of its metrics, and how late its event loop is."""
