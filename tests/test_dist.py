"""The wheel has all of the package and nothing else, and runs where nothing but what it names is."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from tools.check_dist import metadata_faults, package_files, wheel_faults

ROOT = Path(__file__).parent.parent
HEAVY = {"torch"}
"""Required, but not used by runs that train nothing: `make check-dist` installs it as well."""
CONFIG = """
clients = 8
policy = "timelyfl"
[task]
kind = "timing"
[stop]
rounds = 5
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling", reason="no hatchling here; it is in the extra dev")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


def metadata_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith("/METADATA"))
        return archive.read(name).decode()


def required(requirements):
    """Distributions that these requirements name, and all that those require, without extras."""
    from packaging.requirements import Requirement

    found, waiting = {}, list(requirements)
    while waiting:
        one = Requirement(waiting.pop())
        if (
            one.name in HEAVY
            or one.name in found
            or not (one.marker is None or one.marker.evaluate({"extra": ""}))
        ):
            continue
        found[one.name] = distribution(one.name)
        waiting += found[one.name].requires or ()
    return found.values()


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The command of an environment that has the wheel, and links to what it requires but torch."""
    place = tmp_path_factory.mktemp("bare")
    venv.create(place, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    for one in required(Parser().parsestr(metadata_of(wheel)).get_all("Requires-Dist")):
        for top in {Path(file).parts[0] for file in one.files} - {"..", "__pycache__"}:
            (packages / top).symlink_to(Path(one.locate_file(top)).resolve())
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--quiet", "--no-compile", str(wheel)], check=True)
    return place / "bin" / "fedpace"


def run(command, *arguments, folder):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        [command, *arguments], cwd=folder, env=clean, capture_output=True, text=True, check=False
    )


def test_the_wheel_has_every_file_of_the_package_and_its_metadata(wheel):
    assert wheel_faults(wheel) == []
    names = package_files()
    assert {"fedpace/py.typed", "fedpace/cli/new/files/my_policy.py"} <= names


def test_faults_of_a_wheel_are_named(wheel, tmp_path):
    other = Path(shutil.copy(wheel, tmp_path))
    with zipfile.ZipFile(other, "a") as archive:
        archive.writestr("fedpace/tests/test_it.py", "")
    assert len(wheel_faults(other)) == 2
    assert "Summary is None" in "".join(metadata_faults("x", "Name: fedpace\n\ntext"))


def test_a_policy_runs_from_the_wheel_with_what_it_requires_and_without_torch(installed, tmp_path):
    (tmp_path / "config.toml").write_text(CONFIG)
    done = run(installed, "run", "config.toml", "--out", "here", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rounds" in done.stdout
    assert (tmp_path / "here/journal.jsonl").is_file()
    where = "import fedpace, importlib.util as u; print(fedpace.__file__, u.find_spec('torch'))"
    said = run(installed.with_name("python"), "-c", where, folder=tmp_path).stdout
    assert said.split() == [
        str(next(installed.parents[1].glob("lib/*/site-packages")) / "fedpace/__init__.py"),
        "None",
    ]


def test_a_study_begins_from_the_wheel(installed, tmp_path):
    done = run(installed, "new", "study", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "study").iterdir())) == 4
