"""Several runs side by side: policies, seeds, and grids of settings."""
