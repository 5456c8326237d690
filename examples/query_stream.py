"""Ask /query-stream/ and print what comes, as it comes: `python query_stream.py [URL] [QUERY]`."""

import sys

import requests

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
query = sys.argv[2] if len(sys.argv) > 2 else "Who are you?"

with requests.get(f"{url}/query-stream/", params={"query": query}, stream=True) as response:
    response.raise_for_status()
    for chunk in response.iter_content(1024, decode_unicode=True):
        print(chunk, end="", flush=True)
