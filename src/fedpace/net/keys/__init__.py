"""Keys: the authority that makes them, and the checks of every call."""
