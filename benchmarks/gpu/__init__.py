"""Measurements on a GPU: `make bench-gpu`, or `python -m benchmarks.gpu` (its help says more)."""
