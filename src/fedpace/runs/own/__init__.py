"""What users make in Python in place of what a config names."""
