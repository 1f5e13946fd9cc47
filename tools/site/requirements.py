"""Print what the extra `docs` needs: the pages' environment has no need of fedpace itself."""

import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
print("\n".join(project["optional-dependencies"]["docs"]))
