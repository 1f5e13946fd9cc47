"""A table of a paper: a config with its grid, in one scene or several.

The file is a fedpace config with `[compare]` and `[sweep]`, and a table `[paper]` of its own:

    title = "..."                    of its headings
    reference = "timelyfl"           policy that times are told relative to, in every study
    ours = "cadence"                 policy that is set against the best of the others
    forms = ["cadence-memory"]       labels of ours in other forms, which are none of the others
    choose_share = 0.5               runs of the choice last this share of a policy's hours; default: 1
    patience = 2.0                   in the choice a setting is out that is at no target in its hours,
                                     or in so many times another one's time to the last; default: 1
    to_end = true                    the table's runs go on to their hours; default: to the last target
    columns = AXIS                   scenes are columns from this axis on; default: a table for each
    ranges = AXIS                    with columns: the ranges over all scenes with each of its values
    [paper.studies]                  labels that are compared with each other, by a name; default: all
    [paper.scenes.AXIS.VALUE]        keys of the config that this scene changes, as `--set` has them
    [paper.says.HEADING]             LABEL = what the paper tells: a text, or one for each column
    [paper.choose_in]                AXIS = VALUE: the scene in which settings are chosen for all others

Scenes are all combinations of the axes' values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from run_workers import RunOrder, Settings

from fedpace.core.errors import ConfigError
from fedpace.report.sweep.choice import Criterion
from fedpace.runs import config as configs
from fedpace.runs.comparison.compare import check_policy
from fedpace.runs.comparison.grid import GridCell, grid_cells
from fedpace.runs.config import Config

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "papers"
KEYS = (
    "title",
    "reference",
    "ours",
    "forms",
    "studies",
    "scenes",
    "choose_in",
    "choose_share",
    "patience",
    "to_end",
    "columns",
    "ranges",
    "says",
)


@dataclass(frozen=True)
class Scene:
    """One environment of a table: the policies are compared within it. values: axis -> value."""

    values: Mapping[str, str]
    base: Settings
    _plans: dict[str, tuple[float | None, Settings, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its values, in the order of the axes."""
        return ", ".join(f"{axis} {value}" for axis, value in self.values.items())

    @cached_property
    def config(self) -> Config:
        """The config of the scene, with the table of every policy."""
        return configs.load(self.base)

    @cached_property
    def _expanded(self) -> tuple[Config, dict[str, GridCell]]:
        if not self.config.sweep.grid:
            labels = self.config.compare.policies or tuple(self.config.policies)
            return self.config, {label: GridCell(label, {}) for label in labels}
        return grid_cells(self.config, self.config.sweep.grid, "sweep.grid")

    @property
    def cells(self) -> dict[str, GridCell]:
        """The settings that are tried, by label."""
        return self._expanded[1]

    def cells_of(self, policy: str) -> list[str]:
        """The labels of a policy's settings, in the order of the grid."""
        return [label for label, cell in self.cells.items() if cell.policy == policy]

    def key(self, label: str) -> str:
        """Where results of a setting stand."""
        return f"{self.name}: {label}" if self.name else label

    def check(self, label: str) -> None:
        """ConfigError for a setting that is wrong here."""
        try:
            check_policy(self._expanded[0], label)
        except ConfigError as error:
            raise ConfigError(f"{self.key(label)}: {error}") from None

    def _plan(self, label: str) -> tuple[float | None, Settings, int]:
        """The hours of a setting, the settings of its policy with all defaults, and its revision."""
        if label not in self._plans:
            plan = configs.policy_plan(self._expanded[0], label)
            settings = configs.plain(plan.settings)
            self._plans[label] = plan.stop.hours, settings, plan.kind.revision
        return self._plans[label]

    @property
    def targets(self) -> tuple[float, ...]:
        """Targets of the table in this scene, the easiest first."""
        return self.config.compare.targets

    @property
    def criterion(self) -> Criterion:
        """What settings are chosen by."""
        targets, metric = self.config.sweep.targets or self.targets, self.config.compare.metric
        if self.config.sweep.by == "value" or not targets:
            return Criterion("value", metric)
        return Criterion("time", metric, targets)

    def order(
        self,
        label: str,
        seed: int,
        targets: tuple[float, ...],
        race: bool = False,
        share: float = 1.0,
        patience: float = 1.0,
    ) -> RunOrder:
        """A run of a setting, which ends at the highest target, or after a share of its hours."""
        config = self._expanded[0]
        policy = self.cells[label].policy
        own = {"use": policy} | dict(config.policies.get(label, {}))
        metric = self.config.compare.metric
        hours, settings, revision = self._plan(label)
        if targets:
            aim = {"target": targets[-1]} | ({} if metric is None else {"metric": metric})
            own["stop"] = {**dict(own.get("stop", {})), **aim}
        if share < 1 and hours is not None:
            own["stop"] = {**dict(own.get("stop", {})), "hours": hours * share}
        rest = {
            key: value for key, value in self.base.items() if key not in ("compare", "sweep", "name")
        }
        given = rest | {"seed": seed, "policy": "it", "policies": {"it": own}}
        own_race = f"{self.key(policy)}, seed {seed}" if race else None
        aims = targets if race else ()
        key = self.key(label)
        return RunOrder(key, seed, given, settings, own_race, aims, metric, revision, patience)


@dataclass(frozen=True)
class PaperTable:
    """A table as its file tells it."""

    name: str
    title: str
    scenes: tuple[Scene, ...]
    studies: Mapping[str, tuple[str, ...]]
    reference: str | None = None
    ours: str | None = None
    choose_share: float = 1.0
    patience: float = 1.0
    to_end: bool = False
    columns: str | None = None
    says: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    choose_in: Mapping[str, str] = field(default_factory=dict)
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    forms: tuple[str, ...] = ()
    ranges: str | None = None

    @property
    def config(self) -> Config:
        """The config of its first scene; what tables and grids share is the same in all."""
        return self.scenes[0].config

    @property
    def policies(self) -> list[str]:
        """Labels of all policies, in their order."""
        return list(self.config.compare.policies or self.config.policies)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the table."""
        return tuple(range(self.config.seed, self.config.seed + self.config.compare.seeds))

    @property
    def choose_seeds(self) -> tuple[int, ...]:
        """Seeds of the choice."""
        first = self.config.sweep.choose_from
        first = self.config.seed + 100 if first is None else first
        return tuple(range(first, first + self.config.sweep.choose_seeds))

    def order(self, scene: Scene, label: str, seed: int) -> RunOrder:
        """A run of a setting on one of the table's seeds."""
        return scene.order(label, seed, () if self.to_end else scene.targets)

    def choosing_order(self, scene: Scene, label: str, seed: int) -> RunOrder:
        """A run of the choice."""
        race = seed == self.choose_seeds[0] and scene.criterion.by == "time"
        targets, share = scene.criterion.targets, self.choose_share
        return scene.order(label, seed, targets, race, share, self.patience if race else 1.0)

    def check(self) -> None:
        """ConfigError for settings of a policy that are wrong in a scene, before anything runs."""
        for scene in self.scenes:
            for label in scene.cells:
                scene.check(label)

    def choosing_scene(self, scene: Scene) -> Scene:
        """The scene whose choice holds in this one."""
        wanted = {**scene.values, **self.choose_in}
        return next(one for one in self.scenes if one.values == wanted)

    def place_of(self, scene: Scene) -> tuple[str, ...]:
        """The scene's values of the axes before the columns."""
        axes = list(self.axes)
        return tuple(scene.values[axis] for axis in axes[: axes.index(self.columns or "")])

    def says_of(self, study: str, scene: Scene) -> Mapping[str, Any]:
        """What the paper tells of the scene's place, in a table with columns."""
        return self.says.get(heading_of(study, *self.place_of(scene)) or "all", {})

    def said(self, study: str, scene: Scene, policy: str) -> str:
        """What the paper tells of a policy in a scene of a table with columns; nothing: not told."""
        texts, place = self.says_of(study, scene).get(policy), self.place_of(scene)
        alike = [one.name for one in self.scenes if self.place_of(one) == place]
        return "" if texts is None else str(texts[alike.index(scene.name)])

    def label_in(self, study: str, name: str | None) -> str | None:
        """The label of a policy in a study: its name, or one that begins with it and a hyphen."""
        labels = self.studies[study]
        found = [label for label in labels if name is not None and label.startswith(f"{name}-")]
        return name if name in labels else next(iter(found), None)


def heading_of(study: str, *place: str) -> str:
    """The heading of a table, by which `[paper.says]` names it, too."""
    return ", ".join(text for text in (study, *place) if text)


def read_table(name: str | Path, overrides: Mapping[str, Any] | None = None) -> PaperTable:
    """The table of a name in configs/papers, or of a file; ConfigError where it is wrong."""
    path = Path(name) if str(name).endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(one.stem for one in FOLDER.glob("*.toml")))
        raise ConfigError(f"there is no table {name!r}; known are {known}")
    table = configs.read(path)
    return table_of(path.stem, changed(table, overrides or {}))


def table_of(name: str, table: Settings) -> PaperTable:
    """The table of a config with `[paper]` in it."""
    base, paper = dict(table), dict(table.get("paper", {}))
    base.pop("paper", None)
    for key in paper:
        if key not in KEYS:
            raise ConfigError(f"unknown key 'paper.{key}'; known are {', '.join(KEYS)}")
    axes: dict[str, dict[str, Settings]] = paper.get("scenes", {})
    scenes = []
    for values in product(*axes.values()):
        made = base
        for axis, value in zip(axes, values, strict=True):
            made = changed(made, axes[axis][value])
        scenes.append(Scene(dict(zip(axes, values, strict=True)), made))
    choose_in = paper.get("choose_in", {})
    for axis, value in choose_in.items():
        if value not in axes.get(axis, {}):
            raise ConfigError(f"paper.choose_in has {axis} = {value!r}, which is no scene")
    for key in ("columns", "ranges"):
        if key in paper and paper[key] not in axes:
            raise ConfigError(f"paper.{key} is {paper[key]!r}, which is no axis of paper.scenes")
    patience = paper.get("patience", 1.0)
    if not isinstance(patience, int | float) or patience < 1:
        raise ConfigError(
            f"paper.patience is {patience!r}, but says how many times as long as the first "
            "another setting may take; set it to 1 or more"
        )
    if "ranges" in paper and "columns" not in paper:
        raise ConfigError("paper.ranges is of tables with columns; set paper.columns, too")
    policies = list(scenes[0].config.compare.policies or scenes[0].config.policies)
    studies = {key: tuple(labels) for key, labels in paper.get("studies", {"": policies}).items()}
    for label in paper.get("forms", ()):
        if label not in policies:
            raise ConfigError(f"paper.forms has {label!r}, which is none of {', '.join(policies)}")
    listed = [label for labels in studies.values() for label in labels]
    if sorted(listed) != sorted(policies):
        raise ConfigError(
            f"paper.studies has {sorted(listed)}; it must have each of {sorted(policies)}"
        )
    return PaperTable(
        name,
        paper.get("title", scenes[0].config.name),
        tuple(scenes),
        studies,
        paper.get("reference"),
        paper.get("ours"),
        paper.get("choose_share", 1.0),
        patience,
        paper.get("to_end", False),
        paper.get("columns"),
        paper.get("says", {}),
        choose_in,
        {axis: tuple(values) for axis, values in axes.items()},
        tuple(paper.get("forms", ())),
        paper.get("ranges"),
    )


def changed(table: Settings, changes: Mapping[str, Any]) -> Settings:
    """The table with other values under some keys, which may be written as `a.b.c`; tables are merged.

    An empty table takes the place of one.
    """
    made = dict(table)
    for key, value in changes.items():
        place = made
        *path, last = key.split(".")
        for part in path:
            place[part] = dict(place.get(part, {}))
            place = place[part]
        merge = isinstance(value, Mapping) and value
        place[last] = changed(dict(place.get(last, {})), value) if merge else value
    return made
