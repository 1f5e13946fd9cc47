"""`fedpace keys` as an operator meets it."""

import builtins

import pytest
from typer.testing import CliRunner

from fedpace.cli.keys import app
from fedpace.core.errors import ConfigError
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys, Gate


@pytest.fixture
def keys(tmp_path, monkeypatch):
    """Run a command in an empty folder; what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("socket.gethostname", lambda: "box")

    def run(*arguments):
        result = CliRunner().invoke(app, arguments)
        if result.exception is not None:
            raise result.exception
        return result.output

    run.folder = tmp_path / "keys"
    return run


def test_from_nothing_to_a_client_that_can_join(keys):
    said = keys("init", "--host", "fl.example.org", "--host", "10.0.0.7")
    assert "localhost, 127.0.0.1, ::1, box, fl.example.org, 10.0.0.7 until 20" in said
    assert "`fedpace keys client NAME`" in said
    assert "ca.key stays here" in said
    said = keys("client", "phone-1", "phone-2")
    for name in ("phone-1", "phone-2"):
        assert f"keys/clients/{name}: for the machine of {name}" in said
        assert ClientKeys.open(keys.folder / "clients" / name).name == name
    Gate.open(keys.folder, "certificate").credentials()


def test_a_machines_name_that_no_certificate_can_have_is_left_out(keys, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "my box!")
    assert "localhost, 127.0.0.1, ::1 until" in keys("init")


def test_the_folder_can_be_elsewhere(keys, tmp_path):
    keys("init", "--keys", "a/b")
    keys("client", "x", "--keys", "a/b", "--days", "3")
    ((identity, _),) = Authority.open(tmp_path / "a/b").identities()
    assert 2 <= (identity.until - Authority.open(tmp_path / "a/b")._clock()).days <= 3


def test_a_second_init_is_refused(keys):
    keys("init")
    before = (keys.folder / "ca.crt").read_bytes()
    with pytest.raises(ConfigError, match="holds keys already"):
        keys("init")
    assert (keys.folder / "ca.crt").read_bytes() == before


def test_renewing_keeps_the_authority_and_the_hosts(keys):
    keys("init", "--host", "fl.example.org", "--days", "5")
    before = (keys.folder / "ca.crt").read_bytes()
    assert "fl.example.org until" in keys("init", "--renew")
    assert "restart the server" in keys("init", "--renew", "--host", "10.0.0.7")
    assert Authority.open(keys.folder).server()[0] == [
        "localhost",
        "127.0.0.1",
        "::1",
        "box",
        "10.0.0.7",
    ]
    assert (keys.folder / "ca.crt").read_bytes() == before


def test_a_list_of_all_with_what_was_revoked(keys):
    keys("init")
    assert "no clients yet" in keys("list")
    keys("client", "a", "b")
    keys("client", "c", "--token")
    assert "a is revoked (certificate)" in keys("revoke", "a")
    assert "revoked already" in keys("revoke", "a")
    keys("client", "a", "--token")
    server, header, *rows = keys("list").splitlines()
    assert "a server at localhost" in server
    assert header.split() == ["name", "kind", "valid", "until", "revoked"]
    shown = sorted((*row.split()[:2], "-" in row.split()) for row in rows)
    assert shown == [
        ("a", "certificate", False),
        ("a", "token", True),
        ("b", "certificate", True),
        ("c", "token", True),
    ]


def test_long_names_are_shown_whole(keys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    keys("init")
    name = "".join(str(number % 10) for number in range(64))
    keys("client", name)
    _, _, *rows = keys("list").splitlines()
    assert "".join(row.split()[0] for row in rows) == name


@pytest.mark.parametrize("command", [("client", "a"), ("revoke", "a"), ("list",), ("init", "--renew")])
def test_without_an_authority_the_way_is_told(keys, command):
    with pytest.raises(
        ConfigError, match=r"there is no keys/ca.crt; make keys with `fedpace keys init`"
    ):
        keys(*command)
    assert not keys.folder.exists()


def test_without_the_package_the_extra_is_named(keys, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments):
        if name.startswith("fedpace.net"):
            raise ModuleNotFoundError("No module named 'cryptography'", name="cryptography")
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"the package cryptography is missing; .*fedpace\[net\]"):
        keys("init")
