"""Stream an answer's events; cut off, go on with it: `python generate_stream.py [URL] [PROMPT]`."""

import json
import sys

import requests

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
prompt = sys.argv[2] if len(sys.argv) > 2 else "How are you?"
last_id = ""


def show(response: requests.Response) -> bool:
    """Print the text of a stream's events; whether the last of them has come."""
    global last_id
    response.raise_for_status()
    for line in response.iter_lines(decode_unicode=True):
        if line.startswith("id: "):
            last_id = line.removeprefix("id: ")
        elif line == "data: [DONE]":
            return True
        elif line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                sys.exit(event["error"]["message"])
            print(event["text"], end="", flush=True)
    return False


body = {"prompt": prompt, "temperature": 0.7, "max_tokens": 100}
with requests.post(f"{url}/generate-stream", json=body, stream=True) as response:
    run = response.headers.get("x-run-id", "")
    try:
        is_done = show(response)
    except requests.exceptions.ChunkedEncodingError:
        is_done = False
if not is_done:
    headers = {"Last-Event-ID": last_id}
    with requests.get(f"{url}/generate-stream/{run}", headers=headers, stream=True) as response:
        show(response)
print()
