"""`fedpace status`: what it says of a run, and how `--watch` is given."""

import io

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from fedpace.cli import status as commands
from fedpace.cli.status import StatusCommand, headline, plain_message, status, status_table
from fedpace.core.errors import PeerError

pb = pytest.importorskip("fedpace.net.federation_pb2")


def reply(**rest):
    return pb.StatusReply(name="ward", policy="timelyfl", state="running", round=12, now_s=90.4, **rest)


def test_the_first_line_has_round_metric_rate_and_time_left():
    known = reply(rounds=100, tested="accuracy 71.2%", rounds_per_s=0.2, left_s=440.0)
    assert headline(known) == (
        "ward: timelyfl, running, round 12/100, accuracy 71.2%, 12.0 rounds/min, 7.3 min left, 90 s"
    )
    assert headline(reply()) == "ward: timelyfl, running, round 12, 90 s"


def table(width, **late):
    found = reply()
    for name in ("alice", "bob"):
        doing = "trains from version 17 (task 35, 12 batches)"
        found.clients.add(
            name=name, state="getting ready", doing=doing, task=35, task_age_s=12.5, **late
        )
    console = Console(width=width, file=io.StringIO())
    console.print(status_table(found, width))
    return console.file.getvalue().splitlines()


def test_a_narrow_terminal_has_fewer_columns_and_whole_cells():
    wide, narrow = table(200), table(80)
    assert "s a batch" in wide[1]
    assert not any("not shown" in line for line in wide)
    assert narrow[1].split() == ["client", "state", "doing", "age"]
    assert "trains from version 17 (task 35, 12 batches)" in narrow[2]
    assert narrow[4].startswith("not shown in 80 columns: late, seen, s a batch, s down")


def test_a_column_with_news_stays_before_one_without():
    assert "late" in table(90, late_s=3.0)[1]
    assert "late" not in table(90, batch_s=3.0)[1]


def test_a_time_left_that_is_not_known_is_null_for_programs():
    assert plain_message(reply())["left_s"] is None
    assert plain_message(reply(left_s=3.0))["left_s"] == 3.0


@pytest.mark.parametrize(
    ("arguments", "every"),
    [
        (["--watch"], 2.0),
        (["--watch", "5"], 5.0),
        (["--watch", "--json"], 2.0),
        (["--watch", "0.5", "--json"], 0.5),
        ([], None),
    ],
)
def test_the_seconds_of_watch_may_be_left_out(monkeypatch, arguments, every):
    found = []
    monkeypatch.setattr(commands, "client_keys", lambda *_: None)
    monkeypatch.setattr(commands, "_print_json", lambda ask, watch: found.append(watch))
    monkeypatch.setattr(commands, "_print_lines", lambda ask, watch: found.append(watch))
    monkeypatch.setattr(commands.asyncio, "run", lambda _: reply())
    monkeypatch.setattr("fedpace.runs.federation.ask_status", lambda *_: None)
    app = typer.Typer()
    app.command(cls=StatusCommand)(status)
    done = CliRunner().invoke(app, ["127.0.0.1:1", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert found == ([] if every is None else [every])
    assert every is not None or "round 12" in done.output


def test_a_pipe_gets_a_line_each_time_also_while_the_server_is_away(monkeypatch, capsys):
    answers = [reply(rounds=100), PeerError("it does not answer"), reply(rounds=100)]

    def ask():
        if not answers:
            raise KeyboardInterrupt
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(commands.time, "sleep", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        commands._print_lines(ask, 1.0)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:24] for line in lines] == [
        "ward: timelyfl, running,",
        "! it does not answer",
        lines[0][:24],
    ]
