"""Results of runs and comparisons, for Python and notebooks."""
