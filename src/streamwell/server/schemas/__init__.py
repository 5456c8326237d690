"""Wire models: what clients send. They never go below `convert`."""
