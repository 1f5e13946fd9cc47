"""Random generators made from keys."""
