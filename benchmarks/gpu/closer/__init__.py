"""Measurements that look into a run: kernels, steps of one client, seconds of each kind."""
