"""A run's rounds as the simulator predicts them, with the devices of a fleet file.

The policy, its settings, the model and the clients' samples are those of the journal's header and its
messages; only time is simulated, so that it takes seconds.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedpace.core.contract.faults import make_policy
from fedpace.core.errors import ConfigError, JournalError
from fedpace.core.events import Joined
from fedpace.core.journal import Header, read
from fedpace.core.run import EvaluateSettings, Run, StopSettings
from fedpace.core.session import Session
from fedpace.fleet.fleet import Fleet
from fedpace.fleet.learned.learn import client_names
from fedpace.fleet.listed import DeviceFileSettings, device_names, fleet_of_rows, read_devices
from fedpace.fleet.tables import CsvTable
from fedpace.report.predictions.rounds import RoundPrediction, lengths_of
from fedpace.report.tally import Tally
from fedpace.runs import config as configs
from fedpace.runs import plugins
from fedpace.sim.learner import TimingOnly
from fedpace.sim.world import SimulatedWorld

SIMULATIONS = 20
"""Of a run; each has a jitter of its own."""
MOST_TASKS = 2_000_000
"""Tasks in all simulations of a run; of a long one there are fewer."""


def predict_rounds(
    journal: Path, settings: DeviceFileSettings, simulations: int | None = None
) -> RoundPrediction:
    """The rounds of a run, real and predicted; one that is not over as far as it has come.

    simulations: by default SIMULATIONS, or fewer of a long run.
    """
    header, messages = read(journal, unfinished=True)
    tally, samples = Tally(header.context.budget), dict[int, int]()
    for message in messages:
        tally.write(message)
        if isinstance(message, Joined):
            samples.setdefault(message.client, message.samples)
    if not tally.round_times:
        raise JournalError(f"{journal} has no round that is over; check it against a longer run")
    _check_policy(header, journal)
    table = read_devices(settings)
    rows, words = _rows(table, journal, sorted(samples))
    held = [samples[client] for client in sorted(samples)]
    rounds = len(tally.round_times)
    found = []
    for seed in range(simulations or max(min(SIMULATIONS, MOST_TASKS // max(tally.tasks, 1)), 1)):
        fleet = fleet_of_rows(table, settings, rows, seed)
        found.append(_simulate(header, fleet, held, rounds))
    predicted = tuple(one for one in found if one)
    if not predicted:
        raise ConfigError(
            f"the simulator comes to no round of {journal} with the devices of {settings.file}; "
            "their presence may not be that of this run"
        )
    label = header.run.get("label")
    return RoundPrediction(
        str(label or header.policy),
        header.policy,
        header.context.seed,
        "real" if header.run.get("clock") == "real" else "virtual",
        str(journal),
        lengths_of(tally.round_times),
        predicted,
        words,
    )


def _simulate(header: Header, fleet: Fleet, samples: Sequence[int], rounds: int) -> tuple[float, ...]:
    """Lengths of a simulation's rounds."""
    context = header.context
    kind = plugins.load("policies", header.policy)
    policy = make_policy(kind, configs.build(kind.Settings, header.settings, "settings"), context)
    tally = Tally(context.budget)
    world = SimulatedWorld(fleet, samples, context.model, TimingOnly())
    stop = StopSettings(rounds=rounds)
    Run(Session(policy, tally), world, None, EvaluateSettings(), stop).to_end()
    return lengths_of(tally.round_times)


def _check_policy(header: Header, journal: Path) -> None:
    """Refuse a policy that measures updates: there are none in a simulation of time alone."""
    kind = plugins.load("policies", header.policy)
    settings = configs.build(kind.Settings, header.settings, "settings")
    measured = [*kind.measures(settings), *["accuracy"] * kind.evaluates]
    if measured:
        raise ConfigError(
            f"{journal}: policy {header.policy!r} measures {', '.join(measured)}, but a simulation of "
            "time alone has none; check a run of another policy"
        )


def _rows(table: CsvTable, journal: Path, clients: Sequence[int]) -> tuple[list[int], tuple[str, ...]]:
    """The row of each client by its name or number, and words about those that have none."""
    places = {name: row for row, name in enumerate(device_names(table))}
    known = client_names(journal)
    names = [known[one] if one < len(known) else str(one) for one in clients]
    missing = [name for name in names if name not in places]
    if 2 * len(missing) > len(names):
        there = len(names) - len(missing)
        raise ConfigError(
            f"{table.path} has {there} of the {len(names)} clients of {journal}, and not "
            f"{', '.join(missing[:3])}; learn a fleet of this run"
        )
    seconds = table.positive("compute_s")
    usual = sorted(range(table.rows), key=lambda row: seconds[row])[table.rows // 2]
    words: tuple[str, ...] = ()
    if missing:
        like = device_names(table)[usual]
        words = (f"not in {table.path}, and taken to be like {like}: {', '.join(missing[:8])}",)
    return [places.get(name, usual) for name in names], words


def settings_of(file: Path, dropout: float = 0.0) -> DeviceFileSettings:
    """Settings of a fleet that a file lists."""
    settings = DeviceFileSettings(file)
    return replace(settings, behaviour=replace(settings.behaviour, dropout=dropout))
