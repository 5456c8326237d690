"""Us next to everybody else, in one run: `python -m bench.peers`; see docs/benchmarks.md."""
