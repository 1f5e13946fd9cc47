"""Measurements of how far results are from each other: stacks and one by one, CPU and GPU."""
