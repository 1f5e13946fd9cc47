"""The numbers of a comparison, and their table for a README: one row a label.

What a target takes is a mean only when every seed got there; a mean over the lucky ones would flatter
a policy that sometimes fails, so it is shown apart, with how many they were.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from fedpace.core.errors import ConfigError
from fedpace.core.evaluation.fairness import SPEED_GROUPS, Fairness
from fedpace.core.evaluation.metric import ACCURACY, MetricInfo
from fedpace.report.states import all_ended_well, state_cells
from fedpace.report.summary import Groups, Summary, chosen_metric
from fedpace.report.units import byte_unit, decimals, significant, speeds_heading, time_unit

_LOWER = {"tf32", "bf16"}
"""Precisions of training that a table names; float32 goes without saying."""


@dataclass(frozen=True, slots=True)
class MeanAndSd:
    """Mean and sample standard deviation (n - 1) over seeds; sd is None for one value."""

    mean: float
    sd: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Self | None:
        """Mean over the values that are there; None when none is."""
        there = [value for value in values if value is not None]
        if not there:
            return None
        return cls(statistics.fmean(there), statistics.stdev(there) if len(there) > 1 else None)


@dataclass(frozen=True, slots=True)
class TargetCost:
    """Seconds or money that a target took the `reached` of `seeds` runs of a label that got there.

    factor: the mean over that of the first label, where all seeds of both got there.
    """

    reached: int
    seeds: int
    taken: MeanAndSd | None
    factor: float | None = None

    def over(self, base: "TargetCost | None") -> "TargetCost":
        """The same cost with its factor over another label's."""
        if base is None or self.taken is None or base.taken is None or not base.taken.mean > 0:
            return self
        all_there = self.reached == self.seeds and base.reached == base.seeds
        return replace(self, factor=self.taken.mean / base.taken.mean) if all_there else self


@dataclass(frozen=True, slots=True)
class TableRow:
    """One number of every label, for people and for programs.

    key: its name for programs, with the unit of `values`: seconds, bytes, shares of 1; header: for
    people, with its unit; cells: a text a label, as header with line breaks where they may be narrow.
    costs: of a target, in place of values; both are empty where there are only words.
    """

    key: str
    header: str
    cells: Sequence[str]
    values: Sequence[MeanAndSd | None] = ()
    costs: Sequence[TargetCost | None] = ()


def target_costs(
    groups: Groups, target: float, money: bool = False, metric: MetricInfo | None = None
) -> list[TargetCost | None]:
    """The time, or the money, to a target for each label; None for a label without prices.

    metric: what the target is of, by default the main one of each run.
    """
    name = None if metric is None else metric.name
    costs: list[TargetCost | None] = []
    for runs in groups.values():
        if money and all(run.money is None for run in runs):
            costs.append(None)
            continue
        tested = [run for run in runs if name is None or name in run.values]
        values = [run.money_to(target, name) if money else run.time_to(target, name) for run in tested]
        reached = sum(one is not None for one in values)
        cost = TargetCost(reached, len(runs), MeanAndSd.of(values))
        costs.append(cost.over(costs[0] if costs else cost))
    return costs


def markdown(groups: Groups, targets: Sequence[float], metric: str | None = None) -> str:
    """The table for a README, with its heading above and its caption below."""
    found = measures(groups, targets, metric)
    lines = [["policy", *(one.header for one in found)], ["---", *("---:" for _ in found)]]
    for i, label in enumerate(groups):
        lines.append([label.replace("|", "\\|"), *(one.cells[i] for one in found)])
    table = "\n".join("| " + " | ".join(line).replace("\n", " ") + " |" for line in lines)
    return f"{heading(groups)}\n\n{table}\n\n{caption(groups)}\n"


def measures(groups: Groups, targets: Sequence[float], metric: str | None = None) -> list[TableRow]:
    """All numbers; none about metrics where nothing was evaluated, none about money without prices."""
    chosen = chosen_metric(groups, metric)
    for target in targets:
        (chosen or ACCURACY).check_target(target, "target")
    for label, runs in groups.items():
        if not runs:
            raise ConfigError(f"there are no runs under {label!r}; give at least one, or leave it out")
    every = [run for runs in groups.values() for run in runs]
    costs = any(run.money is not None for run in every)
    out: list[TableRow] = []
    if not all_ended_well(groups):
        out.append(TableRow("state", "state", state_cells(groups)))

    def means(pick: Callable[[Summary], float | None]) -> list[MeanAndSd | None]:
        return [MeanAndSd.of([pick(run) for run in runs]) for runs in groups.values()]

    def number(
        key: str,
        header: str,
        pick: Callable[[Summary], float | None],
        per: float,
        spread: bool = False,
        most: int = 1,
    ) -> None:
        values = means(pick)
        smallest = min((v.mean / per for v in values if v and v.mean > 0), default=1.0)
        digits = min(decimals(smallest), most)
        out.append(TableRow(key, header, [_number(v, per, digits, spread) for v in values], values))

    def value(key: str, header: str, share: bool, pick: Callable[[Summary], float | None]) -> None:
        if share:
            number(f"{key}_share", f"{header}\n(%)", pick, 0.01, True)
            return
        values = means(pick)
        digits = significant(max((abs(one.mean) for one in values if one), default=1.0))
        out.append(TableRow(key, header, [_number(one, 1.0, digits, True) for one in values], values))

    def tested(which: str, info: MetricInfo, pick: Callable[[Summary, str], float | None]) -> None:
        name = "" if info.name == ACCURACY.name else f" {info.name}"

        def read(run: Summary) -> float | None:
            return pick(run, info.name) if info.name in run.values else None

        value(f"{which}_{info.name}", f"{which}{name}", info.share, read)

    if chosen is not None:
        times = [target_costs(groups, target, metric=chosen) for target in targets]
        taken = [cost.taken.mean for row in times for cost in row if cost and cost.taken]
        unit, unit_s = time_unit(max(taken, default=0.0))
        for target, row in zip(targets, times, strict=True):
            out.append(_target(chosen, target, row, "s", unit, unit_s))
        for target in targets if costs else ():
            row = target_costs(groups, target, money=True, metric=chosen)
            out.append(_target(chosen, target, row, "money", "money"))
        tested("best", chosen, Summary.best)
        tested("final", chosen, Summary.final)
        known = dict.fromkeys(one for run in every for one in run.metrics if one.name in run.values)
        for one in known:
            if one.name != chosen.name:
                tested("final", one, Summary.final)
    shares = {one.name: one.share for run in every for one in run.metrics}
    for key, header, metric_name, read in fairness_columns(every):
        value(key, header, shares.get(metric_name, False), read)
    ran, ran_s = time_unit(_largest(means(lambda run: run.end_s)))
    number("ran_s", f"ran for\n({ran})", lambda run: run.end_s, ran_s)
    if costs:
        number("spent_money", "spent\n(money)", lambda run: run.money, 1, most=3)
    number("rounds", "rounds", lambda run: run.rounds, 1, most=0)
    number(
        "participation_share", "participation\n(% of rounds)", lambda run: run.mean_participation, 0.01,
        most=3,
    )  # fmt: skip
    if any(run.left_out for run in every):
        number("left_out_share", "left out\n(% of clients)", lambda run: run.left_out, 0.01)
    number("clients_per_round", "clients\na round", lambda run: run.mean_clients, 1)
    number("updates_an_hour", "updates\nan hour", lambda run: run.updates_an_hour, 1, most=2)
    number("samples_an_hour", "samples\nan hour", lambda run: run.samples_an_hour, 1, most=1)
    number("idle_share", "idle\n(%)", lambda run: run.idle_share, 0.01)
    size, size_bytes = byte_unit(_largest(means(lambda run: run.moved_bytes)))
    number("moved_bytes", f"moved\n({size})", lambda run: run.moved_bytes, size_bytes, most=2)
    return out


def fairness_columns(
    runs: Sequence[Summary],
) -> Iterator[tuple[str, str, str, Callable[[Summary], float | None]]]:
    """Keys, headers, metrics and readers of numbers of clients' own tests, if there were any."""
    found = [run.fairness for run in runs if run.fairness is not None]
    if not found:
        return
    name = found[0].metric
    word = "" if name == ACCURACY.name else f" {name}"

    def column(pick: Callable[[Fairness], float | None]) -> Callable[[Summary], float | None]:
        return lambda run: pick(run.fairness) if run.fairness and run.fairness.metric == name else None

    yield f"clients_mean_{name}", f"clients' mean{word}", name, column(lambda one: one.mean)
    yield f"worst_decile_{name}", f"worst decile{word}", name, column(lambda one: one.worst_decile)
    yield f"spread_{name}", f"spread{word}", name, column(lambda one: one.spread)
    for group in SPEED_GROUPS:
        if any(group in one.groups for one in found):
            yield (
                f"{group}_third_{name}",
                f"{group} third{word}",
                name,
                column(partial(_group_mean, group)),
            )


def _group_mean(group: str, found: Fairness) -> float | None:
    return found.groups.get(group)


def _target(
    metric: MetricInfo,
    target: float,
    costs: list[TargetCost | None],
    unit: str,
    shown: str,
    per: float = 1.0,
) -> TableRow:
    """What a target takes. unit: of the costs; shown: that of the table, which is `per` of it."""
    key = f"to_{metric.name}_{target:g}_{unit}"
    return TableRow(
        key, f"{target_text(metric, target)}\n({shown})", _cost_cells(costs, per), costs=costs
    )


def target_text(metric: MetricInfo, target: float) -> str:
    """A target as a heading; its sign tells the direction."""
    if metric.name == ACCURACY.name:
        return f"to {metric.target(target)}"
    return f"{metric.name} {metric.sign} {metric.target(target)}"


def _largest(values: Sequence[MeanAndSd | None]) -> float:
    return max((value.mean for value in values if value), default=0.0)


def _cost_cells(costs: list[TargetCost | None], per: float = 1.0) -> list[str]:
    """Cells of one target: its cost for every label, in units of `per`."""
    means = [c.taken.mean / per for c in costs if c and c.taken and c.taken.mean > 0]
    digits = decimals(min(means, default=1.0))
    cells = []
    for cost in costs:
        text = _number(cost.taken if cost else None, per, digits, True)
        if cost and cost.reached < cost.seeds:
            mean = f",\nmean {cost.taken.mean / per:.{digits}f}" if cost.taken else ""
            text = f"n/a\n({cost.reached}/{cost.seeds} reached{mean})"
        elif cost and cost.factor is not None and len(costs) > 1:
            text = f"{text}\n({cost.factor:.2f}x)"
        cells.append(text)
    return cells


def _number(value: MeanAndSd | None, per: float, digits: int, spread: bool) -> str:
    if value is None:
        return "n/a"
    sd = f" ± {value.sd / per:.{digits}f}" if spread and value.sd is not None else ""
    return f"{value.mean / per:.{digits}f}{sd}"


def heading(groups: Groups, long: bool = True) -> str:
    """What compute times mean in these runs; seeds of one label that differ are all named."""
    kinds = {label: " and ".join(sorted({run.speeds for run in own})) for label, own in groups.items()}
    return speeds_heading(kinds, long)


def caption(groups: Groups) -> str:
    """How many seeds the numbers are of, whose clock the times are, and precision below float32."""
    seeds = {len(runs) for runs in groups.values()}
    clocks = " and ".join(sorted({run.clock for runs in groups.values() for run in runs}))
    less = _lower_precision(groups)
    if max(seeds, default=1) == 1:
        return f"One seed; times are {clocks}.{less}"
    count = str(min(seeds)) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    return f"Mean ± standard deviation over {count} seeds; times are {clocks}.{less}"


def _lower_precision(groups: Groups) -> str:
    """A sentence about labels whose training was less exact than float32; empty where none was."""
    kinds = {label: {run.precision for run in own} for label, own in groups.items()}
    lower = {label: " and ".join(sorted(found)) for label, found in kinds.items() if found & _LOWER}
    if not lower:
        return ""
    if len(lower) == len(groups) and len(set(lower.values())) == 1:
        return f" Trained in {next(iter(lower.values()))}."
    named = ", ".join(f"{label} in {precision}" for label, precision in lower.items())
    return f" Trained in float32, but {named}."
