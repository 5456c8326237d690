"""The engine: token ids in, token ids out. It knows no text, no HTTP and no database.

`client` runs in the server process; everything below `process` runs in the engine process.
"""
