"""The live page over HTTP on loopback: what is answered, to whom, and how much of it."""

import contextlib
import gzip
import http.client
import json
import os
import socket
import threading

import pytest

from fedpace.core.journal import JOURNAL
from fedpace.report.live import http as live_http
from fedpace.report.live.access import KeyAccess, OpenAccess
from fedpace.report.live.feed import LiveFeed
from fedpace.report.live.http import LivePageServer
from fedpace.report.live.runs import FollowedRuns


def document(runs):
    return {"rounds": {label: one.rounds for label, (one,) in runs.groups().items()}}


@contextlib.contextmanager
def serving(folder, access=None, **limits):
    feed, page = LiveFeed(FollowedRuns(folder), document), b"<html>page</html>"
    server = LivePageServer(("127.0.0.1", 0), feed, page, access or OpenAccess(), **limits)
    server.start()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def server(journal, tmp_path_factory):
    """One of a run that is over, with a key."""
    folder = tmp_path_factory.mktemp("over")
    (folder / JOURNAL).write_bytes(journal)
    with serving(folder, KeyAccess()) as server:
        yield server


def get(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=names)
    answer = connection.getresponse()
    return answer, answer.read() if answer.headers.get("Content-Length") else b""


def cookie(server):
    answer, _ = get(server, f"/?key={server.access.key}")
    return answer.headers["Set-Cookie"].partition(";")[0]


class Events:
    """The events of a stream, a few lines of a client."""

    def __init__(self, server, **headers):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        self.connection.request("GET", "/events", headers=headers)
        self.answer = self.connection.getresponse()

    def __iter__(self):
        for line in self.answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def until(self, wanted):
        return next(one for one in self if wanted(one))

    def close(self):
        self.answer.close()
        self.connection.close()


def test_the_link_gives_a_cookie_and_the_cookie_opens_page_and_data(server):
    answer, _ = get(server, f"/?key={server.access.key}")
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    assert "HttpOnly" in answer.headers["Set-Cookie"]
    answer, body = get(server, "/", Cookie=cookie(server))
    assert (answer.status, body) == (200, b"<html>page</html>")
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    answer, body = get(server, "/data", Cookie=cookie(server))
    assert json.loads(gzip.decompress(body)) == {"rounds": {"sync": 5}}


@pytest.mark.parametrize("path", ["/", "/data", "/events", "/?key=wrong", "/data?key=wrong", "/x"])
def test_without_the_key_nothing_is_shown(server, path):
    answer, body = get(server, path)
    assert answer.status == 403
    assert b"open the link" in body
    assert b"sync" not in body


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.org", "[::1", ""])
def test_another_sites_name_for_this_machine_is_refused(server, host):
    assert get(server, "/", Host=host, Cookie=cookie(server))[0].status == 421


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1", "[::1]:80", "LOCALHOST"])
def test_names_of_this_machine_are_fine_also_through_a_tunnel(server, host):
    assert get(server, "/", Host=host, Cookie=cookie(server))[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_only_get_is_answered(server, method):
    assert get(server, "/", method, Cookie=cookie(server))[0].status == 405


@pytest.mark.parametrize("path", ["/journal.jsonl", "/../journal.jsonl", "/data/..", "/.lock", "//"])
def test_there_are_no_files(server, path):
    answer, body = get(server, path, Cookie=cookie(server))
    assert answer.status in (404, 200 if path == "//" else 404)
    assert b"policy" not in body


def test_events_say_when_a_growing_run_has_more(tmp_path, journal, grow):
    (tmp_path / ".lock").write_text(json.dumps({"pid": os.getpid()}))
    with serving(tmp_path) as server:
        events = Events(server)
        assert next(iter(events))["text"] == "nothing has begun yet"
        part = grow(len(journal) // 2)
        first = events.until(lambda one: one["version"] > 0)
        assert first["under_way"]
        assert not first["over"]
        before = json.loads(gzip.decompress(get(server, "/data")[1]))["rounds"]["sync"]
        assert before < 5
        grow(len(journal))
        os.replace(part, tmp_path / JOURNAL)
        (tmp_path / ".lock").unlink()
        last = events.until(lambda one: one["over"] and one["version"] > first["version"])
        assert last["text"] == "over: 5 rounds are over"
        assert json.loads(gzip.decompress(get(server, "/data")[1]))["rounds"] == {"sync": 5}
        closing = threading.Thread(target=server.close)
        closing.start()
        assert [one["closed"] for one in events][-1] is True
        closing.join()
        events.close()


def test_a_page_that_cannot_be_made_says_so_and_is_tried_again(tmp_path, journal, grow):
    made = []

    def sometimes(runs):
        made.append(runs)
        return 1 / (len(made) - 1)

    grow(len(journal) // 2)
    feed = LiveFeed(FollowedRuns(tmp_path), sometimes)
    feed.start()
    try:
        with feed.reading():
            state = until(feed, lambda state: state.fault)
            assert state.fault == "the page cannot be made: division by zero"
            grow(len(journal))
            assert until(feed, lambda state: state.version).fault == ""
    finally:
        feed.close()


def test_a_slow_browser_gets_the_newest_and_no_more(tmp_path, journal, grow):
    grow(len(journal) // 2)
    with serving(tmp_path) as server:
        feed = server.feed
        with feed.reading():
            until(feed, lambda state: state.version)
            for end in range(len(journal) // 2, len(journal), 500):
                grow(end)
                feed._runs.advance()
                feed._publish()
            grow(len(journal))
            newest = feed.wait(feed.state, 0.0)
        assert newest == feed.state  # nothing that came in between is kept


def test_connections_and_streams_are_bounded(tmp_path, grow):
    grow(1000)
    with serving(tmp_path, most=2, most_streams=1) as server:
        one = Events(server)
        assert next(iter(one))["runs"] in (0, 1)
        answer, body = get(server, "/events")
        assert answer.status == 503
        assert b"too many look already" in body
        wait_until(lambda: server._slots._value == 1)
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as held:
            held.sendall(b"GET / HT")
            wait_until(lambda: not server._slots._value)
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as more:
                assert more.recv(1) == b""  # cut off at once
            held.sendall(b"TP/1.0\r\n\r\n")
            assert held.recv(20).startswith(b"HTTP/1.0 421")
        one.close()


def test_who_sends_no_request_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(live_http, "REQUEST_S", 0.1)
    monkeypatch.setattr(live_http._PageRequest, "timeout", 0.1)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as silent:
        assert silent.recv(1) == b""


def until(feed, holds):
    """The first state of a feed of which something holds."""
    state = feed.wait(None, 0.0)
    for _ in range(300):
        if holds(state):
            return state
        state = feed.wait(state, 0.1)
    raise AssertionError(f"it never does: {state}")


def wait_until(holds):
    pause = threading.Event()
    for _ in range(2000):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it never does")
