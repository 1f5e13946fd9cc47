"""Stacks whose steps are captured once and replayed."""
