"""`fedpace fleets`: kinds of fleets, and fleets that are learned from runs."""
