"""`python -m fedpace`, the same as the command `fedpace`."""

from fedpace.cli.main import main

main()
