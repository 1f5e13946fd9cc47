"""`python -m fedpace`, the same as the command `fedpace`."""

from fedpace.cli import main

main()
