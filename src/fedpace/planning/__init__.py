"""Optimisers that schedulers use, and that are usable on their own."""
