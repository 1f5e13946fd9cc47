"""`fedpace watch` from its link to its end, and what it refuses."""

import http.client
import os
import re
import socket
import threading

import pytest
from typer.testing import CliRunner

from fedpace.cli import watch as command
from fedpace.cli.main import app
from fedpace.core.journal import JOURNAL
from tests.cli.command import fedpace
from tests.core.test_journal import written


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["runs/nowhere"], "there is no folder runs/nowhere; give that of a run or of several"),
        (["file"], "file is a file; give the folder of a run"),
        ([".", "--host", "192.0.2.1"], "192.0.2.1:8851 cannot be listened on: "),
    ],
)
def test_a_mistake_is_one_line(tmp_path, arguments, complaint):
    (tmp_path / "file").write_text("")
    done = fedpace(tmp_path, "watch", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_port_that_is_asked_for_and_taken_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = fedpace(tmp_path, "watch", ".", "--port", str(port))
    assert (
        f"127.0.0.1:{port} cannot be listened on: Address already in use; give another" in done.stderr
    )


def test_it_says_the_link_and_ends_when_the_run_is_over_and_nobody_looks(tmp_path, monkeypatch):
    written(tmp_path / JOURNAL)
    monkeypatch.setattr(command, "LINGER_S", 0.0)
    before = sorted(os.listdir(tmp_path))
    done = fedpace(tmp_path, "watch", ".", "--port", "0")
    assert done.returncode == 0, done.stderr
    link, end = done.stdout.splitlines()
    assert re.match(r"http://127\.0\.0\.1:\d+/\?key=\S+ shows \.; Ctrl-C ends this page", link)
    assert end == "over: done"
    assert sorted(os.listdir(tmp_path)) == before


def test_the_page_of_a_run_that_is_over_stays_while_it_is_looked_at(tmp_path, monkeypatch):
    written(tmp_path / JOURNAL)
    monkeypatch.setattr(command, "LINGER_S", 0.0)
    monkeypatch.setattr("fedpace.report.live.http.BEAT_S", 0.1)
    opened, streams = threading.Event(), []

    def browse(link):
        found = re.match(r"http://([^/]+)/(.*)", link)
        connection = http.client.HTTPConnection(found[1], timeout=20)
        connection.request("GET", f"/{found[2]}")
        cookie = connection.getresponse().headers["Set-Cookie"].partition(";")[0]
        connection.close()
        connection.request("GET", "/events", headers={"Cookie": cookie})
        streams.append(connection.getresponse())
        assert streams[0].readline().startswith(b"data: ")
        opened.set()

    monkeypatch.setattr(command, "_open", browse)
    found = []
    watching = threading.Thread(
        target=lambda: found.append(
            CliRunner().invoke(app, ["watch", str(tmp_path), "--port", "0", "--open"])
        )
    )
    watching.start()
    assert opened.wait(30)
    watching.join(0.6)
    assert watching.is_alive()
    streams[0].close()
    watching.join(60)
    assert not watching.is_alive()
    assert found[0].exit_code == 0, found[0].output


@pytest.mark.parametrize(
    ("server", "host", "link", "tunnel"),
    [
        ("fed.example:8850", "0.0.0.0", "https://fed.example:8852/?key=once", False),
        ("[2001:db8::1]:8850", "::", "https://[2001:db8::1]:8852/?key=once", False),
        ("fed.example:8850", "127.0.0.1", "https://127.0.0.1:8852/?key=once", True),
        ("127.0.0.1:8850", "127.0.0.1", "https://127.0.0.1:8852/?key=once", False),
    ],
)
def test_an_operators_link_leads_to_where_the_page_is(
    tmp_path, monkeypatch, server, host, link, tunnel
):
    pb = pytest.importorskip("fedpace.net.federation_pb2")

    async def answer(*_):
        return pb.PageLink(host=host, port=8852, ticket="once", fingerprint="ab01")

    monkeypatch.setattr("fedpace.runs.federation.ask_page_link", answer)
    monkeypatch.setattr(command, "client_keys", lambda *_, **__: None)
    done = fedpace(tmp_path, "page", server)
    assert done.stdout.strip() == link
    assert "SHA-256: AB:01" in done.stderr
    assert ("ssh -N -L 8852:127.0.0.1:8852 fed.example" in done.stderr) == tunnel
