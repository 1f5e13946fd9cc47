"""Schedulers: one algorithm, one file."""
