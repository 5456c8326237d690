"""What an engine's process runs, by the name of the engine; others have no process."""

from streamwell.engine.launch import OWN_PROGRAM

PROGRAMS = {"transformers": OWN_PROGRAM, "vllm": "streamwell.backends.vllm.process"}
