"""Reads journals: summaries, tables and figures."""
