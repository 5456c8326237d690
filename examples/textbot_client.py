"""Send a prompt in the URL and print the answer as it comes: `python textbot_client.py [URL]`.

Run it in two terminals: both stream at the same time.
"""

import sys

import requests

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
query = {"prompt": "Tell me a story about dogs."}

with requests.post(f"{url}/", params=query, stream=True) as response:
    response.raise_for_status()
    for chunk in response.iter_content(chunk_size=None, decode_unicode=True):
        print(chunk, end="", flush=True)
print()
