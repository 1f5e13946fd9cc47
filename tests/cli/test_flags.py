"""Errors speak of arguments in Python, and of options on the command line."""

import re
from pathlib import Path

import fedpace
from fedpace.cli.shared import FLAGS, in_flags

ROOMS = Path(fedpace.__file__).parent
OF_COMMANDS = {"authority.py", "enrolment.py", "membership.py", "server_tls.py"}
"""Made for operators, whose commands they name."""


def test_the_library_names_no_option_of_the_command_line():
    found = [
        f"{path.relative_to(ROOMS)}: {line.strip()}"
        for path in sorted(ROOMS.rglob("*.py"))
        if path.relative_to(ROOMS).parts[0] != "cli" and path.name not in OF_COMMANDS
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(
            r"--(resume|overwrite|jobs|policies|policy|device|workers|set|anywhere|out)\\b", line
        )
    ]
    assert found == []


def test_every_word_that_is_put_into_options_is_one_of_the_librarys():
    code = "".join(path.read_text(encoding="utf-8") for path in ROOMS.rglob("*.py"))
    for words in FLAGS:
        written = words.replace("'", "") if words.startswith("override") else words
        assert code.count(written.strip()) > 1, words


def test_the_command_line_says_its_own_words():
    python = "it holds a run already; use resume=True, overwrite=True or another folder"
    assert in_flags(python) == "it holds a run already; use --resume, --overwrite or another folder"
