"""Tables of comparisons: layouts that fit a terminal, and files for other programs."""
