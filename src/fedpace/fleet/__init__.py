"""Devices: compute, links, presence; from distributions, traces or explicit numbers."""
