"""Progress of runs: round, metric, rate and time left, for terminals, logs and notebooks."""
