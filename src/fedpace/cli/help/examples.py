"""Examples below the help of each command."""

import typer

EXAMPLES: dict[str, tuple[str, ...]] = {
    "new": ("fedpace new my-study",),
    "run": (
        "fedpace run configs/demo.toml --policy timelyfl --set stop.rounds=50",
        "fedpace run configs/demo.toml --out runs/one --resume",
    ),
    "compare": (
        "fedpace compare configs/demo.toml --out runs/demo",
        "fedpace compare configs/demo.toml --policies timelyfl,sync --seeds 5",
    ),
    "sweep": (
        "fedpace sweep configs/demo.toml --dry-run",
        "fedpace sweep configs/demo.toml --grid train.lr=0.05,0.1 --target 0.7",
    ),
    "advise": (
        "fedpace advise configs/demo.toml --timing-only",
        "fedpace advise configs/demo.toml --target 0.7 --within 10m",
        "fedpace advise configs/demo.toml --within 20m --resume",
    ),
    "watch": ("fedpace watch runs/demo --open", "fedpace watch runs/demo --port 9000"),
    "report": (
        "fedpace report runs/demo --target 0.7 --target 0.75",
        "fedpace report runs/demo --first sync --metric loss",
        "fedpace report runs/demo --format csv -o demo.csv",
    ),
    "export": (
        "fedpace export runs/demo --to tensorboard",
        "fedpace export runs/demo --to wandb --offline --out tracking",
    ),
    "trace": (
        "fedpace trace runs/demo/timelyfl/seed-0",
        "fedpace trace runs/demo/timelyfl/seed-0 --out timelyfl.json.gz",
    ),
    "replay": ("fedpace replay runs/demo/timelyfl/seed-0",),
    "policies": ("fedpace policies", "fedpace policies timelyfl"),
    "tasks": ("fedpace tasks", "fedpace tasks fashion-mnist"),
    "fleets show": ("fedpace fleets show phones",),
    "fleets learn": (
        "fedpace fleets learn runs/served --check",
        "fedpace fleets learn runs/monday runs/tuesday --out lab.csv",
    ),
    "fleets check": ("fedpace fleets check lab.csv runs/served --out predicted",),
    "settings": ("fedpace settings", "fedpace settings train"),
    "serve": (
        "fedpace serve configs/federation.toml --keys keys/server --out runs/served",
        "fedpace serve configs/federation.toml --insecure --set stop.rounds=5",
    ),
    "join": (
        "fedpace join server:8850 --keys keys/alice --task my_task:make_task",
        "fedpace join 127.0.0.1:8850 --insecure --name alice --task my_task:make_task",
    ),
    "status": ("fedpace status server:8850 --keys keys/operator --watch 5",),
    "page": ("fedpace page server:8850 --keys keys/operator --open",),
    "drain": ("fedpace drain server:8850 alice --keys keys/operator --reason maintenance",),
    "expel": ("fedpace expel server:8850 mallory --keys keys/operator",),
    "data list": ("fedpace data list",),
    "data verify": ("fedpace data verify fashion-mnist",),
    "data fetch": ("fedpace data fetch fashion-mnist --root ~/data",),
    "plan deadlines": ("fedpace plan deadlines configs/plans/deadlines.toml --out plan.png",),
    "plan coopt": ("fedpace plan coopt configs/plans/coopt.toml --csv plan.csv",),
    "keys init": ("fedpace keys init --host federation.example.org",),
    "keys invite": ("fedpace keys invite alice",),
    "keys enrol": ("fedpace keys enrol server:8850 --token @token.txt",),
    "keys request": ("fedpace keys request alice",),
    "keys sign": ("fedpace keys sign alice.csr",),
    "keys client": ("fedpace keys client alice",),
    "keys revoke": ("fedpace keys revoke mallory",),
    "keys list": ("fedpace keys list",),
    "keys audit": ("fedpace keys audit",),
    "stop": ("fedpace stop server:8850 --keys keys/operator",),
}


def add_examples(app: typer.Typer, before: str = "") -> None:
    """Put the examples of every command of an app, and of its groups, below the command's help."""
    for command in app.registered_commands:
        name = str(command.name or getattr(command.callback, "__name__", ""))
        command.epilog = _epilog(EXAMPLES.get(before + name, ()))
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_examples(group.typer_instance, f"{before}{group.name} ")


def _epilog(lines: tuple[str, ...]) -> str | None:
    """Examples as a paragraph that keeps its lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) if lines else None
