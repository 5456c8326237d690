"""Stream an answer's events; cut off, go on with it: `python generate_stream.py [URL] [PROMPT]`."""

import json
import sys
import time

import requests

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
prompt = sys.argv[2] if len(sys.argv) > 2 else "How are you?"


def show(response: requests.Response, last_id: str = "") -> str | None:
    """Print the text of a stream's events; returns the last id if the end has not come."""
    response.raise_for_status()
    if response.status_code == 204:  # there is nothing after the last id
        return None
    try:
        for line in response.iter_lines():  # bytes: texts have line ends of their own
            field, _, value = line.decode().partition(": ")
            if field == "id":
                last_id = value
            elif value == "[DONE]":
                return None
            elif field == "data":
                event = json.loads(value)
                if "error" in event:
                    sys.exit(event["error"]["message"])
                print(event["text"], end="", flush=True)
    except requests.exceptions.ChunkedEncodingError:
        pass  # the connection broke
    return last_id


def go_on(run: str, last_id: str) -> str | None:
    """Print what comes after an event; a server that is not there yet is asked again."""
    headers = {"Last-Event-ID": last_id}
    try:
        with requests.get(f"{url}/generate-stream/{run}", headers=headers, stream=True) as response:
            if response.status_code < 500:
                return show(response, last_id)
    except requests.exceptions.ConnectionError:
        pass
    time.sleep(1)
    return last_id


body = {"prompt": prompt, "temperature": 0.7, "max_tokens": 100}
with requests.post(f"{url}/generate-stream", json=body, stream=True) as response:
    run = response.headers.get("x-run-id", "")
    last_id = show(response)
while last_id is not None:
    last_id = go_on(run, last_id)
print()
