"""Metrics: how the answers of a model are scored, and how scores add up over the test samples."""
