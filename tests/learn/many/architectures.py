"""Small models of many architectures, and tasks for them."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedpace.learn.metrics.loss import TokenLoss
from fedpace.learn.tasks.models.text import CausalAlbert
from fedpace.learn.tasks.task import Task

SIZES = (13, 21, 6, 40, 15, 9)
TOKENS, LENGTH = 11, 6


class Sequences(nn.Module):
    """A recurrent layer over sequences [samples, steps, 4] between two dense ones."""

    def __init__(self, kind, **options):
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.recur = kind(5, 6, **options)
        width = options.get("proj_size", 6)
        self.head = nn.Linear(width * (2 if options.get("bidirectional") else 1), 3)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        if self.recur.batch_first:
            return self.head(self.recur(x)[0].mean(1))
        return self.head(self.recur(x.transpose(0, 1))[0].mean(0))


class LastStates(nn.Module):
    """Two recurrent layers; the second goes on from the last states of the first."""

    def __init__(self, kind):
        super().__init__()
        self.read, self.write = kind(4, 5), kind(4, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        steps = x.transpose(0, 1)
        _, last = self.read(steps)
        return self.head(self.write(steps.flip(0), last)[0][-1])


class Cells(nn.Module):
    """A cell that is called step by step."""

    def __init__(self, kind):
        super().__init__()
        self.cell = kind(4, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        state = None
        for column in x.unbind(1):
            state = self.cell(column, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


class Attention(nn.Module):
    """nn.MultiheadAttention over sequences, with a mask and with the weights that it gives."""

    def __init__(self, **options):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.attend = nn.MultiheadAttention(6, 2, batch_first=True, **options)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = self.first(x)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        seen, shares = self.attend(x, x, x, attn_mask=later)
        return self.head(self.norm(x + seen).mean(1)) + shares.mean((1, 2)).unsqueeze(1)


def encoder(**options):
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, **options)
    return nn.Sequential(
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(), nn.Linear(20, 3)
    )


class Convolutions(nn.Module):
    """A depthwise convolution, one in groups and one over all, with a norm of `norm(channels)`."""

    def __init__(self, norm=nn.Identity):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm1 = norm(4)
        self.deep = nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4)
        self.grouped = nn.Conv2d(4, 6, 1, groups=2, bias=False)
        self.norm2 = norm(6)
        self.head = nn.Linear(6 * 9, 3)

    def forward(self, x):
        x = functional.relu(self.norm1(self.first(x)))
        return self.head(functional.relu(self.norm2(self.grouped(self.deep(x)))).flatten(1))


class Sounds(nn.Module):
    """Convolutions over time before a GRU, as in the speech model."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(4, 5, 3, padding=1)
        self.conv2 = nn.Conv1d(5, 6, 3, padding=2, dilation=2, bias=False)
        self.conv3 = nn.Conv1d(6, 6, 3, stride=2, padding=1)
        self.gru = nn.GRU(6, 5, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 3)

    def forward(self, x):
        x = functional.relu(self.conv1(x.transpose(1, 2)))
        x = functional.relu(self.conv3(functional.relu(self.conv2(x))))
        return self.head(self.gru(x.transpose(1, 2))[0].mean(1))


def norms():
    """Batch norms of rows, one of them without weights, whose statistics are means of all batches."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(20, 7),
        nn.BatchNorm1d(7),
        nn.Tanh(),
        nn.Linear(7, 6),
        nn.BatchNorm1d(6, affine=False, momentum=None),
        nn.Tanh(),
        nn.Linear(6, 5),
        nn.BatchNorm1d(5, momentum=0.3),
        nn.Linear(5, 3),
    )


class Words(nn.Module):
    """An embedding with padding, a recurrent layer and an answer for each token."""

    def __init__(self, **options):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, 4, padding_idx=0, **options)
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, TOKENS)

    def forward(self, x):
        return self.head(self.lstm(self.embed(x))[0])


def albert():
    return CausalAlbert(TOKENS, LENGTH, 4, 8, 2, 2)


def _divided(model, inputs, targets, **more):
    shares = np.split(np.random.default_rng(1).permutation(len(inputs)), np.cumsum(SIZES)[:-1])
    return Task(model, (inputs, targets), (inputs[:5], targets[:5]), shares, **more)


def sequences(model):
    draw = np.random.default_rng(2)
    inputs = draw.normal(size=(sum(SIZES), 5, 4)).astype(np.float32)
    return _divided(model, inputs, draw.integers(0, 3, len(inputs)))


def pictures(model):
    draw = np.random.default_rng(3)
    inputs = draw.normal(size=(sum(SIZES), 1, 6, 6)).astype(np.float32)
    return _divided(model, inputs, draw.integers(0, 3, len(inputs)))


def texts(model):
    draw = np.random.default_rng(4)
    tokens = draw.integers(1, TOKENS, (sum(SIZES), LENGTH + 1))
    tokens[::3, 4:] = 0
    return _divided(model, tokens[:, :-1], tokens[:, 1:], loss=TokenLoss(ignore=0))


def _recurrent(kind, **options):
    return lambda: sequences(lambda: Sequences(kind, **options))


TASKS = {
    "gru": _recurrent(nn.GRU, batch_first=True),
    "gru of two layers": _recurrent(nn.GRU, num_layers=2, bidirectional=True, bias=False),
    "lstm": _recurrent(nn.LSTM),
    "lstm of two layers": _recurrent(nn.LSTM, num_layers=2, bidirectional=True, batch_first=True),
    "lstm without bias": _recurrent(nn.LSTM, bias=False),
    "rnn": _recurrent(nn.RNN, bidirectional=True),
    "gru states": lambda: sequences(lambda: LastStates(nn.GRU)),
    "lstm states": lambda: sequences(lambda: LastStates(nn.LSTM)),
    "gru cell": lambda: sequences(lambda: Cells(nn.GRUCell)),
    "lstm cell": lambda: sequences(lambda: Cells(nn.LSTMCell)),
    "sounds": lambda: sequences(Sounds),
    "attention": lambda: sequences(Attention),
    "attention of other widths": lambda: sequences(lambda: Attention(kdim=6, vdim=6, bias=False)),
    "encoder": lambda: sequences(encoder),
    "encoder, norms first": lambda: sequences(lambda: encoder(norm_first=True, activation="gelu")),
    "words": lambda: texts(Words),
    "albert": lambda: texts(albert),
    "depthwise": lambda: pictures(Convolutions),
    "batch norm": lambda: pictures(lambda: Convolutions(nn.BatchNorm2d)),
    "batch norms of rows": lambda: sequences(norms),
}
"""Tasks by the name of an architecture."""
