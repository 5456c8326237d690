"""A client that leaves in the middle of a stream; the server stops generating within a step.

Against `streamwell serve --compat transformers-openai-api`:

python examples/disconnect.py [URL]        (pip install aiohttp)

The server's log says `run has lost its last reader`, and `run ends` with `reason=cancelled` once
nobody has come back within --resume-grace-s.
"""

import asyncio
import sys

import aiohttp

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:7088"
PAYLOAD = {
    "model": "model",
    "temperature": 1.0,
    "top_p": 0.95,
    "top_k": 50,
    "max_tokens": 256,
    "truncate": 2048,
    "repetition_penalty": 1,
    "stop": [],
    "messages": [{"role": "user", "content": "Count to 500."}],
    "stream": True,
}


async def main() -> None:
    count = 0
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{URL}/chat/completions", json=PAYLOAD) as response,
    ):
        async for line in response.content:
            print(line.decode(), end="")
            if count > 5:
                break
            count += 1


asyncio.run(main())
