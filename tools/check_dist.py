"""Check wheel and sdist before they are given to anybody.

    python tools/check_dist.py dist              what is in them, and what they say about themselves
    python tools/check_dist.py dist --install    also that a plain `pip install` of the wheel runs

The second makes an empty environment in a temporary folder, installs the wheel with all it needs (pip
takes the versions of constraints.txt), begins a study by `fedpace new` and runs every command of its
README. Nothing of this repository is on the way of Python there.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SDIST_TOP = {
    "CHANGELOG.md",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "configs",
    "examples",
    "pyproject.toml",
    "src",
}
JUNK = re.compile(r"__pycache__|\.py[co]$|\.egg-info|(^|/)(tests?|\.[^/]+)(/|$)|~$|\.(part|key|token)$")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--install", action="store_true")
    options = parser.parse_args()
    wheel, sdist = (_only(options.folder, pattern) for pattern in ("*.whl", "*.tar.gz"))
    found = [*wheel_faults(wheel), *sdist_faults(sdist)]
    if found:
        sys.exit("\n".join(found))
    for path in (wheel, sdist):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, complete")
    if options.install:
        with tempfile.TemporaryDirectory() as place:
            install_and_run(wheel.resolve(), Path(place))


def package_files() -> set[str]:
    """Files of the package as they lie in the repository."""
    found = (
        path.relative_to(ROOT / "src") for path in (ROOT / "src/fedpace").rglob("*") if path.is_file()
    )
    return {path.as_posix() for path in found if "__pycache__" not in path.parts}


def wheel_faults(wheel: Path) -> list[str]:
    """What is missing in a wheel, should not be in it, or is wrong in its metadata; a line each."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(info).decode()
    folder = info.rsplit("/", 1)[0]
    own, expected = {name for name in names if not name.startswith(folder)}, package_files()
    faults = [f"{wheel.name} has no {name}" for name in sorted(expected - own)]
    faults += [f"{wheel.name} has {name}, which is no file of src" for name in sorted(own - expected)]
    faults += [f"{wheel.name} has {name}" for name in sorted(own) if JUNK.search(name)]
    needed = ["fedpace/py.typed", f"{folder}/entry_points.txt", f"{folder}/licenses/LICENSE"]
    licences = [name for name in expected if Path(name).name.startswith("LICENSE")]
    needed += [f"{folder}/licenses/src/{name}" for name in licences]  # of what is not ours
    faults += [f"{wheel.name} has no {name}" for name in needed if name not in names]
    return faults + metadata_faults(wheel.name, text)


def sdist_faults(sdist: Path) -> list[str]:
    """The same of an sdist."""
    with tarfile.open(sdist) as archive:
        files = [name.split("/", 1)[1] for name in archive.getnames()]
        member = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/PKG-INFO")
        text = member.read().decode() if member is not None else ""
    tops = {name.split("/")[0] for name in files}
    faults = [f"{sdist.name} has no {name}" for name in sorted(SDIST_TOP - tops)]
    faults += [f"{sdist.name} has {name}" for name in sorted(tops - SDIST_TOP - {".gitignore"})]
    faults += [
        f"{sdist.name} has {name}" for name in files if name != ".gitignore" and JUNK.search(name)
    ]
    missing = package_files() - {name.removeprefix("src/") for name in files}
    return (
        faults
        + [f"{sdist.name} has no {name}" for name in sorted(missing)]
        + metadata_faults(sdist.name, text)
    )


def metadata_faults(name: str, text: str) -> list[str]:
    """What is wrong in the metadata that a package index shows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    fields = Parser().parsestr(text)
    expected = {
        "Name": project["name"],
        "Version": project["version"],
        "Summary": project["description"],
        "License-Expression": project["license"],
        "Requires-Python": project["requires-python"],
        "Description-Content-Type": "text/markdown",
    }
    found = {key: fields[key] for key in expected}
    faults = [
        f"{name}: {key} is {found[key]!r}, expected {expected[key]!r}"
        for key in expected
        if found[key] != expected[key]
    ]
    if not str(fields.get_payload()).strip():
        faults.append(f"{name}: no description; README.md is to be it")
    required = {one for one in fields.get_all("Requires-Dist", ()) if "extra ==" not in one}
    if len(required) != len(project["dependencies"]):
        faults.append(f"{name}: requires {sorted(required)}, pyproject.toml {project['dependencies']}")
    return faults


def install_and_run(wheel: Path, place: Path) -> None:
    """Install the wheel with pip and run the README of a new study, each command as it stands."""
    started = time.monotonic()
    _run(place, "python3", "-m", "venv", "env")
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(place, "env/bin/python", *install, "-c", str(ROOT / "constraints.txt"), str(wheel))
    print(f"installed in {time.monotonic() - started:.0f} s", flush=True)
    _run(place, "fedpace", "new", "study")
    readme = (place / "study/README.md").read_text(encoding="utf-8")
    for command in "".join(re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)).splitlines():
        started = time.monotonic()
        _run(place, "bash", "-c", f"cd study && {command}")
        print(f"{command}: {time.monotonic() - started:.0f} s", flush=True)
    for code in re.findall(r"```python\n(.*?)```", readme, re.DOTALL):
        _run(place, "bash", "-c", f"cd study && python -c {shlex.quote(code)}")


def _run(place: Path, *command: str) -> None:
    """Run a command in a place whose environment `env` comes first, and nothing of ours is found."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL"))
    }
    path = os.pathsep.join([str(place / "env/bin"), os.environ["PATH"]])
    subprocess.run(command, cwd=place, env=kept | {"PATH": path, "COLUMNS": "100"}, check=True)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder} has {len(found)} files {pattern}, expected one; run `make dist`")
    return found[0]


if __name__ == "__main__":
    main()
