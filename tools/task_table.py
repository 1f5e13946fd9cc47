"""Every built-in task with its models after a short run, one row after another.

    python tools/task_table.py docs/measured/tasks.json --device cuda
    python tools/task_table.py docs/measured/tasks.json --write docs/tasks.md
    python tools/task_table.py docs/measured/tasks.json --only cifar10 --row-minutes 5

Each row is a process of its own and is kept in RESULTS.json when it is done: the same command goes on
with what is missing, failed, or was run with another config. Rows whose dataset is not in the data root
($FEDPACE_DATA) are left out and named. `--write` puts the table between the two marks of a page.

Two formats have no dataset that may be passed on: LEAF's files are made of Shakespeare's roles, and
those of Speech Commands of the spoken digits (16 kHz, one speaker in each list), both in a temporary
folder. `--speech-commands DIR` takes the real one.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Settings = dict[str, Any]
START, END = "<!-- table of tasks -->", "<!-- end of the table -->"
SKIP = 3
"""Exit code of a row whose dataset is not there."""


@dataclass(frozen=True)
class Row:
    """One line of the table. task: as in a config; make: builds its folder out of other data."""

    task: Settings
    train: Settings
    rounds: int
    n: int = 10
    clients: int | None = 10
    make: str | None = None
    note: str = ""
    partition: Settings = field(default_factory=lambda: {"kind": "dirichlet", "alpha": 0.5})

    def config(self) -> Settings:
        made: Settings = {
            "policy": "sync",
            "policies": {"sync": {"n": self.n}},
            "train": {"batch_size": 32, "precision": "tf32"} | self.train,
            "stop": {"rounds": self.rounds},
            "evaluate": {"every_rounds": max(self.rounds // 5, 1)},
        }
        return (
            made
            if self.clients is None
            else made | {"clients": self.clients, "partition": self.partition}
        )


def _image(kind: str, model: str, lr: float, rounds: int, **more: Any) -> Row:
    return Row({"kind": kind, "model": model, **more}, {"lr": lr}, rounds)


def _text(task: Settings, n: int, rounds: int, make: str | None = None, note: str = "") -> Row:
    """Adam at the clients: SGD needs many more rounds for text."""
    return Row(task, {"optimiser": "Adam", "lr": 0.003}, rounds, n, None, make, note)


WORDS = {"tokens": "words", "length": 20, "vocabulary": 5000}
ROWS: dict[str, Row] = {
    "fashion-mnist, cnn": _image("fashion-mnist", "cnn", 0.1, 20),
    "mnist, svm": _image("mnist", "svm", 0.01, 10),
    "mnist, mlp": _image("mnist", "mlp", 0.1, 10),
    "mnist, mnist-cnn": _image("mnist", "mnist-cnn", 0.05, 10),
    "mnist, lrn-cnn": _image("mnist", "lrn-cnn", 0.05, 10),
    "idx, cnn": Row({"kind": "idx", "model": "cnn"}, {"lr": 0.1}, 10, make="idx", note="MNIST's files"),
    "cifar10, resnet20-gn": _image("cifar10", "resnet20-gn", 0.1, 20),
    "cifar10, resnet18": _image("cifar10", "resnet18", 0.05, 20),
    "cifar10, vgg11": _image("cifar10", "vgg11", 0.03, 30),
    "cifar10, vgg13": _image("cifar10", "vgg13", 0.03, 30),
    "spoken-digits, gru": Row(
        {"kind": "spoken-digits", "model": "gru"}, {"lr": 0.1, "epochs": 2}, 40, 6, None
    ),
    "spoken-digits, vgg11": Row(
        {"kind": "spoken-digits", "model": "vgg11-bn"}, {"lr": 0.02, "epochs": 2}, 20, 6, None
    ),
    "speech-commands, gru": Row(
        {"kind": "speech-commands", "model": "gru"},
        {"lr": 0.1, "epochs": 2},
        40,
        4,
        None,
        "commands",
        "spoken digits in its layout",
    ),
    "shakespeare, lstm": _text({"kind": "shakespeare", "model": "lstm"}, 20, 40),
    "shakespeare, albert": _text({"kind": "shakespeare", "model": "albert", **WORDS}, 20, 40),
    "leaf, lstm": _text(
        {"kind": "leaf", "model": "lstm", "predict": "all"},
        20,
        40,
        "characters",
        "Shakespeare's roles in its layout of characters",
    ),
    "leaf, albert": _text(
        {"kind": "leaf", "model": "albert", "vocabulary": 5000},
        20,
        40,
        "comments",
        "Shakespeare's roles in Reddit's layout",
    ),
}


def run_row(name: str, device: str, commands: Path | None) -> Settings:
    """Carry a row out, here."""
    from task_folders import make_folder

    import fedpace
    from fedpace.runs.config import plugin

    row = ROWS[name]
    with tempfile.TemporaryDirectory() as scratch:
        given = dict(row.task)
        if row.make == "commands" and commands is not None:
            given["folder"] = str(commands)
        elif row.make is not None:
            given["folder"] = str(make_folder(row.make, Path(scratch)))
        kind, settings = plugin("tasks", given, "task")
        task = kind.build(settings, row.clients or 64)
        began = time.monotonic()
        summary = fedpace.simulate(row.config(), task=task, device=device).summary
    model = task.model()
    return {
        "kind": row.task["kind"],
        "model": row.task["model"],
        "note": "" if row.make == "commands" and commands is not None else row.note,
        "parameters": sum(param.numel() for param in model.parameters()),
        "train": len(task.train),
        "test": len(task.test),
        "clients": len(summary.participation),
        "rounds": summary.rounds,
        "metrics": {info.name: summary.final(info.name) for info in summary.metrics},
        "start": {info.name: summary.metric(info.name)[0][1] for info in summary.metrics},
        "shares": [info.name for info in summary.metrics if info.share],
        "seconds": round(time.monotonic() - began, 1),
        "device": device,
    }


def carry_out(path: Path, given: argparse.Namespace) -> None:
    """Run the rows that are missing, each in a process of its own, and save after each."""
    kept: dict[str, Settings] = json.loads(path.read_text()) if path.exists() else {}
    until = time.monotonic() + 60 * given.minutes
    for name, row in ROWS.items():
        asked = json.dumps([row.task, row.config()], sort_keys=True)
        digest = hashlib.sha256(asked.encode()).hexdigest()[:16]
        if given.only and not any(part in name for part in given.only.split(",")):
            continue
        if kept.get(name, {}).get("config") == digest and "error" not in kept[name]:
            continue
        left_s = min(until - time.monotonic(), 60 * given.row_minutes)
        if left_s < 1:
            print(f"{name}: no time is left", flush=True)
            continue
        found = _in_process(name, given, left_s)
        if found is None:
            continue
        kept[name] = found | {"config": digest}
        ordered = {one: kept[one] for one in ROWS if one in kept}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(ordered, indent=1) + "\n")
        print(f"{name}: {found.get('error') or found['metrics']}", flush=True)


def _in_process(name: str, given: argparse.Namespace, limit_s: float) -> Settings | None:
    command = [sys.executable, __file__, str(given.results), "--row", name, "--device", given.device]
    if given.speech_commands is not None:
        command += ["--speech-commands", str(given.speech_commands)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {limit_s:.0f} s"}
    lines = [line for line in (done.stderr or "").splitlines() if line.strip()]
    if done.returncode == SKIP:
        print(f"{name}: left out, {lines[-1]}", flush=True)
        return None
    if done.returncode:
        return {"error": lines[-1] if lines else f"exit code {done.returncode}"}
    result: Settings = json.loads(done.stdout.splitlines()[-1])
    return result


def table(kept: dict[str, Settings]) -> str:
    """The rows that are there, as Markdown."""
    lines = [
        "| task | model | parameters | clients | samples | rounds | before | after | seconds |",
        "|---|---|---:|---:|---:|---:|---|---|---:|",
    ]
    for row in kept.values():
        if "error" in row:
            continue
        note = f" ({row['note']})" if row["note"] else ""
        cells = [
            f"`{row['kind']}`{note}",
            f"`{row['model']}`",
            f"{row['parameters']:,}",
            f"{row['clients']}",
            f"{row['train']:,} + {row['test']:,}",
            f"{row['rounds']}",
            _values(row, "start"),
            _values(row, "metrics"),
            f"{row['seconds']:.0f} ({row['device']})",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _values(row: Settings, which: str) -> str:
    texts = []
    for name, value in row[which].items():
        if name != "loss" or len(row[which]) == 1:
            how = ".1%" if name in row["shares"] else ",.4g"
            texts.append(f"{name} {'none' if value is None else format(value, how)}")
    return ", ".join(texts)


def write_table(page: Path, text: str) -> None:
    """Put the table between the marks of a page."""
    before, found, rest = page.read_text().partition(START)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise SystemExit(f"{page} has no {START} and {END}; put both there")
    page.write_text(f"{before}{START}\n{text}\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", help="rows with one of these in their name, a,b,c")
    parser.add_argument("--minutes", type=float, default=60, help="of all rows together")
    parser.add_argument("--row-minutes", type=float, default=15, help="of one row")
    parser.add_argument("--speech-commands", type=Path, metavar="DIR")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="only write the table into a page")
    parser.add_argument("--row", choices=list(ROWS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row is not None:
        from fedpace.core.errors import ConfigError

        try:
            print(json.dumps(run_row(given.row, given.device, given.speech_commands)))
        except ConfigError as error:
            print(error, file=sys.stderr)
            sys.exit(SKIP if "fedpace data fetch" in str(error) else 1)
        return
    if given.write is None:
        carry_out(given.results, given)
    text = table(json.loads(given.results.read_text())) if given.results.exists() else ""
    if given.write is not None:
        write_table(given.write, text)
    print(text)


if __name__ == "__main__":
    main()
