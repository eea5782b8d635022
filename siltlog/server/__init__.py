"""The server: joins the parts of all rooms, starts and drains them, and answers about the node itself."""
