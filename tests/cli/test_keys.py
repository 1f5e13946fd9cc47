"""`fedpace keys` as an operator meets it."""

import builtins

import pytest
from typer.testing import CliRunner

from fedpace.cli.keys import app
from fedpace.core.errors import ConfigError
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys, Gate
from fedpace.net.keys.joining import JoinToken


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
    assert "`fedpace keys invite NAME`" in said
    assert "for trials on one machine: `fedpace keys client NAME`" in said
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
    assert "shows it from now on" in keys("init", "--renew", "--host", "10.0.0.7")
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
    assert header.split() == ["name", "kind", "valid", "until", "revoked", "role"]
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


def test_a_token_alone_is_on_stdout_and_open_ones_are_listed(keys):
    keys("init")
    done = CliRunner().invoke(app, ("invite", "a", "b", "--hours", "2"))
    tokens = done.stdout.split()
    assert [JoinToken.parse(one).text for one in tokens] == tokens
    assert done.stderr.count("fedpace join HOST:PORT --token") == 2
    ops = CliRunner().invoke(app, ("invite", "ops", "--operator"))
    assert "fedpace keys enrol HOST:PORT" in ops.stderr
    rows = [row.split() for row in keys("list").splitlines()[2:]]
    assert [(row[0], row[1:3], row[-1]) for row in rows] == [
        ("a", ["join", "token"], "client"),
        ("b", ["join", "token"], "client"),
        ("ops", ["join", "token"], "operator"),
    ]


def test_a_key_that_is_made_by_its_owner_is_signed(keys, tmp_path):
    keys("init")
    said = keys("request", "phone", "--keys", "own")
    assert "own/request.csr: for the operator" in said
    assert "own/client.key stays here and secret" in said
    assert "keys/clients/phone: ca.crt and client.crt" in keys("sign", "own/request.csr", "--days", "9")
    for name in ("ca.crt", "client.crt"):
        (tmp_path / "own" / name).write_bytes((keys.folder / "clients/phone" / name).read_bytes())
    assert ClientKeys.open(tmp_path / "own").name == "phone"
    with pytest.raises(
        ConfigError, match=r"there is no nowhere.csr; make it with `fedpace keys request"
    ):
        keys("sign", "nowhere.csr")
    with pytest.raises(ConfigError, match="--name is for one request"):
        keys("sign", "own/request.csr", "own/request.csr", "--name", "x")
    said = keys("audit")
    assert "signed a request: name phone, role client" in said


def test_keys_for_trials_say_so_and_operators_are_listed(keys):
    keys("init")
    assert "for trials: a private key that was made here" in keys("client", "ops", "--operator")
    assert keys("list").splitlines()[2].split()[-1] == "operator"


def test_a_join_token_can_be_in_a_file_or_in_the_environment(keys, tmp_path):
    (tmp_path / "token").write_text("fpj1_x\n")
    for words, environment in ((("--token", "@token"), {}), ((), {"FEDPACE_JOIN_TOKEN": "fpj1_x"})):
        result = CliRunner().invoke(app, ("enrol", "127.0.0.1:1", *words), env=environment)
        assert isinstance(result.exception, ConfigError)
        assert "no join token" in str(result.exception)
    with pytest.raises(ConfigError, match="nowhere cannot be read"):
        keys("enrol", "127.0.0.1:1", "--token", "@nowhere")


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
