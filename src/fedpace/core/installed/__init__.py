"""The package fedpace itself, as it is installed or checked out."""
