"""`fedpace new`, and the files that it writes."""
