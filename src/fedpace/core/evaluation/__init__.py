"""Numbers that models are tested by."""
