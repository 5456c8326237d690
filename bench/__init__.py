"""Benchmarks: programs that measure us next to others; see docs/benchmarks.md."""
