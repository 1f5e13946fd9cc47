"""Predicted against real lengths of rounds."""
