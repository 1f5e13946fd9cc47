"""How much room is left for rounding where times must meet exactly."""

TOLERANCE = 1e-9
"""Relative: a schedule fills its time to the last bit, and must not miss it by one."""
