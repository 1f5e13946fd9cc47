from pathlib import Path

import pytest

from fedpace.core.errors import ConfigError
from fedpace.data.downloads.catalogue import find_dataset
from fedpace.data.downloads.root import data_root, find_dataset_folder


@pytest.fixture(autouse=True)
def no_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FEDPACE_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def put(root: Path, name: str, form: int) -> None:
    for path in find_dataset(name).forms[form].paths(root).values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_the_setting_beats_the_variable_which_beats_the_users_cache(monkeypatch, tmp_path):
    assert data_root(None) == tmp_path / "home/.cache/fedpace/data"
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_root(None) == Path("/cache/fedpace/data")
    monkeypatch.setenv("FEDPACE_DATA", "/variable")
    assert data_root(None) == Path("/variable")
    assert data_root("/setting") == Path("/setting")


def test_an_empty_variable_and_a_relative_cache_count_as_unset(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPACE_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert data_root(None) == tmp_path / "home/.cache/fedpace/data"


def test_a_tilde_is_the_home_folder_in_the_setting_and_in_the_variable(monkeypatch, tmp_path):
    assert data_root("~/sets") == tmp_path / "home/sets"
    monkeypatch.setenv("FEDPACE_DATA", "~/sets")
    assert data_root(None) == tmp_path / "home/sets"


def test_a_root_that_names_nothing_is_refused():
    with pytest.raises(ConfigError, match="root is empty; name a folder"):
        data_root("")
    with pytest.raises(ConfigError, match="~no-such-user-here/x cannot be found"):
        data_root("~no-such-user-here/x")


def test_a_missing_dataset_is_named_with_its_files_its_place_and_what_helps(tmp_path):
    with pytest.raises(ConfigError) as caught:
        find_dataset_folder("mnist", str(tmp_path))
    for part in (
        f"mnist is not in {tmp_path / 'mnist'}",
        "train-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
        "`fedpace data fetch mnist`",
        "FEDPACE_DATA",
        "the task's root",
    ):
        assert part in str(caught.value)


def test_of_an_incomplete_dataset_only_what_is_missing_is_named(tmp_path):
    put(tmp_path, "mnist", 1)
    (tmp_path / "mnist/t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(ConfigError, match=r"there is no t10k-images-idx3-ubyte\.gz; run"):
        find_dataset_folder("mnist", str(tmp_path))


def test_spoken_digits_and_shakespeare_are_found_under_the_names_of_what_they_are(tmp_path):
    put(tmp_path, "spoken-digits", 2)
    put(tmp_path, "shakespeare", 1)
    assert find_dataset_folder("spoken-digits", tmp_path) == tmp_path / "speech"
    assert find_dataset_folder("shakespeare", tmp_path) == tmp_path / "text"


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, form) for name, forms in (("mnist", 2), ("cifar10", 4)) for form in range(forms)],
)
def test_any_complete_form_will_do(tmp_path, name, form):
    put(tmp_path, name, form)
    assert find_dataset_folder(name, str(tmp_path)) == tmp_path / name
