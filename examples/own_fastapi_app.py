"""Your own FastAPI application, which streams `model.generate` to many readers at once.

MODEL=path/to/model uvicorn own_fastapi_app:app
curl -N "http://127.0.0.1:8000/query-stream/?query=Hello!"
"""

import os

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from transformers import AutoModelForCausalLM, AutoTokenizer

from streamwell.models import brooklet_path
from streamwell.streamers import stream

folder = os.environ.get("MODEL") or brooklet_path()
model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
app = FastAPI()


@app.get("/query-stream/")
async def query_stream(query: str) -> StreamingResponse:
    inputs = tokenizer(f"User: {query}\nAssistant:", return_tensors="pt")
    texts = stream(model, tokenizer, **inputs, max_new_tokens=64)
    return StreamingResponse(texts, media_type="text/plain")
