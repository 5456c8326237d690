"""Print the plain text of /generate as it comes: `python generate.py [URL] [PROMPT]`."""

import sys

import requests

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
payload = {
    "prompt": sys.argv[2] if len(sys.argv) > 2 else "What can you do?",
    "temperature": 0.7,
    "top_p": 0.95,
    "top_k": 50,
    "frequency_penalty": 0.9,
    "max_tokens": 100,
    "stop": ["<|system|>", "<|user|>"],
}

with requests.post(f"{url}/generate", json=payload, stream=True) as response:
    response.raise_for_status()
    # chunk by chunk as the server sent them: no character is cut
    for chunk in response.iter_content(chunk_size=None):
        print(chunk.decode("utf-8"), end="", flush=True)
print()
