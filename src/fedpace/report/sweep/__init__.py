"""Sweeps: which setting of each policy is best, chosen on seeds of their own."""
