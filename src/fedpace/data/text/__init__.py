"""Text of several people as padded sequences of tokens."""
