"""Local training of the smallest models in C, compiled on this machine where it has a compiler."""
