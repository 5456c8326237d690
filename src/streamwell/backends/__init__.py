"""Other engines behind the same port."""
