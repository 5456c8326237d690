"""Benchmarks: `python -m bench.engine` and `python -m bench.server`; see docs/benchmarks.md."""
