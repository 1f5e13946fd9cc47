"""Watching a served run: counts, snapshots of its state, metrics and health."""
