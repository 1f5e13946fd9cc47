"""Datasets from the network: catalogue, downloads, checks."""
