"""A chat page in Streamlit.

pip install "streamwell[streamlit]" openai
streamlit run streamlit_chat.py

BASE_URL and API_KEY in the environment say which server it talks to.
"""

import os
import time
from collections.abc import Iterator

import streamlit as st
from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("BASE_URL", "http://127.0.0.1:8000/v1"),
    api_key=os.environ.get("API_KEY", "-"),
)
model = client.models.list().data[0].id
messages = st.session_state.setdefault("messages", [])


def answer() -> Iterator[str]:
    """The answer to the whole conversation, text by text."""
    chunks = client.chat.completions.create(model=model, messages=messages, stream=True)
    for chunk in chunks:
        yield chunk.choices[0].delta.content or ""


st.title(f"Talk with {model}")
for message in messages:
    with st.chat_message(message["role"]):
        st.markdown(message["content"])

if prompt := st.chat_input("Hey there! Drop any question."):
    messages.append({"role": "user", "content": prompt})
    with st.chat_message("user"):
        st.markdown(prompt)
    with st.chat_message("assistant"):
        start_s = time.monotonic()
        text = st.write_stream(answer)
        latency_s = time.monotonic() - start_s
        st.markdown(f"**Time latency for server (End to End) :** {latency_s:.2f} seconds.")
    messages.append({"role": "assistant", "content": text})
