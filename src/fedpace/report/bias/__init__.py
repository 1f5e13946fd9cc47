"""Bias of a run: the weight of clients' data in the model against their share of the data."""
