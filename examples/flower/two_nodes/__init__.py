"""A Flower project that runs a fedpace policy."""
