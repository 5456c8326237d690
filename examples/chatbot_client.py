"""Two turns of one conversation over a WebSocket: `python chatbot_client.py [HOST:PORT]`."""

import sys

from websockets.sync.client import connect

address = sys.argv[1] if len(sys.argv) > 1 else "localhost:8000"
FINISHED = "<<Response Finished>>"

with connect(f"ws://{address}") as websocket:
    for prompt in ("Space the final", " These are the voyages"):
        websocket.send(prompt)
        while (received := websocket.recv()) != FINISHED:
            print(received, end="", flush=True)
        print("\n")
