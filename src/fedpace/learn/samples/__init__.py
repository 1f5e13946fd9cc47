"""Samples of a task: arrays in memory or on disk, and datasets that are read sample by sample."""
