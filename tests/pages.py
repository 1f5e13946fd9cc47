"""Pages of the documentation as tests read them: headings, links and blocks of code."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted(ROOT.glob("docs/**/*.md"))
FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: [^>]+ -->\s*$")


class Block(NamedTuple):
    """A block of code. line: where it begins; not_run: a note before it says why it is not run."""

    page: Path
    line: int
    language: str
    text: str
    not_run: bool

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[Block]:
    """Blocks of code in these languages; "" is that of a block that names none."""
    text, found = page.read_text(encoding="utf-8"), []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        marked = NOT_RUN.search(text[: match.start()]) is not None
        found.append(Block(page, line, match[3], match[4], marked))
    return [one for one in found if one.language in languages]


def without_code(text: str) -> str:
    """The text of a page without its blocks of code."""
    return FENCE.sub("", text)


def anchors(page: Path) -> set[str]:
    """Places of a page that links can name, as GitHub and the site make them of headings."""
    headings = re.findall(
        r"^#+ +(.+?) *$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in headings}
