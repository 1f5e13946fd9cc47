"""Fleets from life: devices as the journals of runs have measured them."""
