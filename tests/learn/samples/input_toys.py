"""Tasks with inputs of all forms; at module level, so that worker processes can import them."""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from fedpace.learn.tasks.task import Task

SIZES = (13, 21, 6, 40, 15, 9)
TOTAL = sum(SIZES)


class Reader(nn.Module):
    """A mean of the embeddings of tokens that are real, and a few numbers, to three classes."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.numbers = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, ids, mask, numbers):
        real = mask.unsqueeze(-1).to(self.embed.weight.dtype)
        mean = (self.embed(ids) * real).sum(1) / real.sum(1).clamp(min=1)
        return self.head(torch.tanh(mean + self.numbers(numbers)))


class Nested(Reader):
    """Takes its arguments as (ids, {mask, numbers})."""

    def forward(self, ids, rest):
        return super().forward(ids, rest["mask"], rest["numbers"])


class Summed(nn.Module):
    """Two inputs, of which each has a layer."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 8), nn.Linear(4, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, a, b):
        return self.head(torch.relu(self.left(a) + self.right(b)))


class Text(NamedTuple):
    ids: np.ndarray
    mask: np.ndarray
    numbers: np.ndarray


class TwoHeads(nn.Module):
    """A class and a number, from one input."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.which, self.much = nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, x):
        x = torch.tanh(self.body(x))
        return {"which": self.which(x), "much": self.much(x).squeeze(-1)}


def two_losses(outputs, targets):
    away = outputs["much"] - targets["much"]
    return nn.functional.cross_entropy(outputs["which"], targets["which"]) + away.square().mean()


def which_hits(outputs, targets):
    return outputs["which"].argmax(-1) == targets["which"]


def arrays():
    draw = np.random.default_rng(3)
    length = draw.integers(1, 6, TOTAL)
    return {
        "ids": draw.integers(0, 11, (TOTAL, 5)).astype(np.uint8),
        "mask": np.arange(5) < length[:, None],
        "numbers": draw.normal(size=(TOTAL, 4)),
    }, draw.integers(0, 3, TOTAL)


def shares():
    return np.split(np.random.default_rng(1).permutation(TOTAL), np.cumsum(SIZES)[:-1])


def named():
    inputs, targets = arrays()
    return Task(Reader, (inputs, targets), (inputs, targets), shares())


def in_a_row():
    inputs, targets = arrays()
    pair = tuple(inputs.values()), targets
    return Task(Reader, pair, pair, shares())


def in_a_named_tuple():
    inputs, targets = arrays()
    pair = Text(**inputs), targets
    return Task(Reader, pair, pair, shares())


def nested():
    inputs, targets = arrays()
    pair = (inputs.pop("ids"), inputs), targets
    return Task(Nested, pair, pair, shares())


def two_targets():
    inputs, targets = arrays()
    pair = inputs["numbers"], {"which": targets, "much": inputs["numbers"].sum(1)}
    return Task(TwoHeads, pair, pair, shares(), two_losses, which_hits)


ALL = {one.__name__: one for one in (named, in_a_row, in_a_named_tuple, nested, two_targets)}


class Rows(Dataset):
    """Pairs of a dict and a class, made when they are asked for."""

    def __init__(self):
        self.inputs, self.targets = arrays()
        self.reads = 0

    def __len__(self):
        return TOTAL

    def __getitem__(self, place):
        if not 0 <= place < TOTAL:
            raise IndexError(place)
        self.reads += 1
        return {key: one[place] for key, one in self.inputs.items()}, int(self.targets[place])


class Noisy(Rows):
    """Draws numbers by torch's generator."""

    def __getitem__(self, place):
        inputs, target = super().__getitem__(place)
        return inputs | {"numbers": inputs["numbers"] + torch.randn(4).numpy()}, target


class Sentences(Dataset):
    """Dicts with as many tokens as a sentence has."""

    def __len__(self):
        return TOTAL

    def __getitem__(self, place):
        inputs, targets = _ARRAYS
        real = inputs["mask"][place]
        return {"ids": inputs["ids"][place][real].tolist(), "label": int(targets[place])}


class Sentence(Reader):
    def forward(self, ids, mask):
        return super().forward(ids, mask, torch.zeros(len(ids), 4, device=ids.device))


def pad(samples):
    """A batch as long as its longest sentence."""
    longest = max(len(one["ids"]) for one in samples)
    lengths = torch.tensor([len(one["ids"]) for one in samples])
    return {
        "ids": torch.tensor([one["ids"] + [0] * (longest - len(one["ids"])) for one in samples]),
        "mask": torch.arange(longest) < lengths[:, None],
        "label": torch.tensor([one["label"] for one in samples]),
    }


class Table:
    """Looks like datasets.Dataset."""

    def __init__(self, columns, kind=None):
        self._columns, self._kind = columns, kind
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self._columns.values())))

    def with_format(self, kind):
        return Table(self._columns, kind)

    def select_columns(self, names):
        return Table({name: self._columns[name] for name in names}, self._kind)

    def __getitem__(self, which):
        made = {"torch": torch.as_tensor, "numpy": np.asarray, None: np.ndarray.tolist}[self._kind]
        if isinstance(which, int):
            return {name: made(values[which]) for name, values in self._columns.items()}
        return {name: made(values[which]) for name, values in self._columns.items()}

    def __getitems__(self, places):
        return [self[place] for place in places]


def dataset():
    return Task(Reader, Rows(), Rows(), shares())


def sentences():
    return Task(Sentence, Sentences(), Sentences(), shares(), collate=pad, target="label")


def table():
    inputs, targets = arrays()
    columns = Table(inputs | {"label": targets})
    return Task(Reader, columns, columns, shares(), target="label")


def wide():
    return nn.Sequential(nn.Linear(3000, 8), nn.ReLU(), nn.Linear(8, 3))


class Strided(nn.Module):
    """No row of dense layers."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Conv1d(1, 2, 50, 50), nn.Linear(120, 3)

    def forward(self, x):
        return self.head(torch.relu(self.first(x.unsqueeze(1))).flatten(1))


def mapped(folder, model=wide):
    """Inputs of bytes in a file."""
    path = folder / "inputs.npy"
    if not path.exists():
        values = np.random.default_rng(4).integers(0, 256, (4 * TOTAL, 3000)).astype(np.uint8)
        np.save(path, values)
    inputs, targets = np.load(path, mmap_mode="r"), arrays()[1]
    test = inputs[TOTAL:], np.tile(targets, 3)
    return Task(model, (inputs[:TOTAL], targets), test, shares(), scale=1 / 255)


_ARRAYS = arrays()
ALL |= {one.__name__: one for one in (dataset, sentences, table)}
