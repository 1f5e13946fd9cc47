"""Advice: which policy, with which settings, for a fleet, its data and an aim."""
