"""`python -m benchmarks.gpu_runs [SECONDS | PART ...]`, former name of `python -m benchmarks.gpu`."""

import sys

from benchmarks.gpu.__main__ import main

if __name__ == "__main__":
    words = sys.argv[1:]
    is_limit = len(words) == 1 and words[0].replace(".", "").isdigit()
    main(["--within", *words] if is_limit else words)
