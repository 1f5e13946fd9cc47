"""Runs that have been, once more in the simulator."""
