"""Experiment trackers: one exporter that reads journals, and a sink each for three services."""
