"""Hooks of mkdocs: pages that are made of files outside docs/, and the links to them.

Pages keep the links that work in the repository. Here those that lead out of docs/ become links to
pages of the site: README is its start, and a file of the code is a page that shows it.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MADE = ROOT / "build" / "reference"
"""Pages that tools/site/commands.py writes."""
MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/tutorial.ipynb": "tutorial.md",
}
LINK = re.compile(r"(\]\()([^)#\s]+)([^)]*\))")
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".sh": "sh", ".proto": "proto"}


def on_config(config: Any) -> Any:
    """List every decision below its tab."""
    for entry in config.nav:
        if "Decisions" in entry:
            entry["Decisions"] += [f"decisions/{path.name}" for path in _decisions()]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are no files of docs/, and those that pages link to."""
    origins = {name: ROOT / name for name in MOVED}
    for name, path in origins.items():
        text = _cells(path) if path.suffix == ".ipynb" else path.read_text("utf-8")
        files.append(File.generated(config, MOVED[name], content=text))
    files.append(File.generated(config, "decisions/index.md", content=_decision_list()))
    for name in ("commands.md", "settings.md"):
        files.append(File.generated(config, f"reference/{name}", content=_made(name)))
    pages = [*origins.values(), *DOCS.glob("**/*.md")]
    while pages:
        for path in _linked(pages.pop()):
            if files.get_file_from_path(site_uri(path)) is None:
                files.append(File.generated(config, site_uri(path), content=_source_page(path)))
                if path.suffix == ".md" or path.is_dir():
                    pages.append(path)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between files of the repository into links between pages."""
    origin, here = origin_of(page.file.src_uri), Path(page.file.src_uri).parent

    def turned(match: re.Match[str]) -> str:
        path = _resolved(origin.parent, match[2])
        if path is None:
            return match[0]
        return f"{match[1]}{os.path.relpath(site_uri(path), here)}{match[3]}"

    return LINK.sub(turned, markdown).replace("<details>", "<details markdown>")


def site_uri(path: Path) -> str:
    """The page or file of the site that shows a file or folder of the repository."""
    name = path.relative_to(ROOT).as_posix()
    if path == DOCS / "decisions":
        return "decisions/index.md"
    if path.is_relative_to(DOCS) and not path.is_dir():
        return path.relative_to(DOCS).as_posix()
    if path.is_dir():
        return f"source/{name}/index.md"
    return MOVED.get(name) or f"source/{name}" + ("" if path.suffix == ".md" else ".md")


def origin_of(uri: str) -> Path:
    """The file of the repository that a page shows."""
    moved = {page: name for name, page in MOVED.items()}
    if uri in moved:
        return ROOT / moved[uri]
    if not uri.startswith("source/"):
        return DOCS / uri
    path = ROOT / uri.removeprefix("source/")
    return path if path.exists() else path.with_suffix("")


def _linked(page: Path) -> Iterator[Path]:
    """Files and folders outside docs/ that a page links to, and decisions."""
    if page.is_dir():
        yield from (one for one in sorted(page.iterdir()) if one.is_file())
        return
    for match in LINK.finditer(page.read_text("utf-8")):
        path = _resolved(page.parent, match[2])
        if path is not None and (not path.is_relative_to(DOCS) or path.is_dir()):
            yield path


def _resolved(folder: Path, target: str) -> Path | None:
    """The file or folder of the repository that a link leads to; None: it is none of them."""
    if ":" in target:
        return None
    path = Path(os.path.normpath(folder / target))
    return path if path.is_relative_to(ROOT) and path.exists() else None


def _source_page(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text("utf-8")
    name = path.relative_to(ROOT).as_posix()
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n"
    if path.is_dir():
        return head + "".join(f"- [{one.name}]({one.name})\n" for one in _linked(path))
    fence = "`" * 5
    return f"{head}{fence}{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text('utf-8')}\n{fence}\n"


def _cells(notebook: Path) -> str:
    """A notebook as a page: its text, and its code in blocks."""
    parts = []
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts)


def _decisions() -> list[Path]:
    return sorted((DOCS / "decisions").glob("[0-9]*.md"))


def _decision_list() -> str:
    titles = [path.read_text("utf-8").splitlines()[0].lstrip("# ") for path in _decisions()]
    rows = [f"- [{title}]({path.name})" for title, path in zip(titles, _decisions(), strict=True)]
    return (
        "# Decisions\n\nWhy things are as they are, in the order in which it was decided.\n\n"
        + "\n".join(rows)
    )


def _made(name: str) -> str:
    path = MADE / name
    if not path.is_file():
        raise SystemExit(f"there is no {path}; `make docs` makes it first")
    return path.read_text("utf-8")
