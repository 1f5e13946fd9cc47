"""Code shared by policies: kinds of rounds, draws, tiers, estimates, checks."""
