"""The engine: token ids in, token ids out. It knows no text, no HTTP and no database.

`client`, and what is its own (`launch`, `backoff`, `mailbox`, `adapter_calls`, `came_up`), runs in
the server process; all else runs in the engine process.
"""
