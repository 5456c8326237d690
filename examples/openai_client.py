"""The openai client against `streamwell serve --compat transformers-openai-api`: whole, streamed.

python examples/openai_client.py [URL] [MODEL]
"""

import sys

from openai import OpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:7088"
model = sys.argv[2] if len(sys.argv) > 2 else "model"
client = OpenAI(api_key="-", base_url=url)

response = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "hello"}],
    temperature=0.1,
    max_tokens=1024,
    top_p=0.95,
    stop=["[/INST]", "[INST]", "<s>"],
)
print(response)

stream = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "hello"}],
    temperature=0.1,
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
