"""Runs that are under way, read from their growing journals and shown in a browser."""
