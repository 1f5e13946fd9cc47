"""Recordings of spoken words, and who spoke them."""
