"""`python -m fedpace`, the same as the command `fedpace`."""

import sys


def main() -> None:
    """The command line; Ctrl-C while it is being imported is no error, either."""
    try:
        from fedpace.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("fedpace: stopped\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
