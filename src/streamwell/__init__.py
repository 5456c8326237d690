"""Streamwell streams local language models; every generation is a durable run."""

__version__ = "0.1.0"
