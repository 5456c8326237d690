"""vLLM behind the `Engine` port, in a child process that our supervisor watches (decision 0031).

`process` speaks our protocol, `host` runs the requests, `engine` is the only file that imports
vLLM, and `translate` and `arguments` say what goes by which name there.
"""
