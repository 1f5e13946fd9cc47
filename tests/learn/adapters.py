"""A small transformer with LoRA adapters, written by hand, as tests and benchmarks use it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import fedpace

VOCABULARY, WIDTH, LENGTH, RANK = 20, 16, 6, 2


@dataclass
class Output:
    """As Hugging Face's models give them: an object, not a tensor."""

    logits: Tensor


class Lora(nn.Module):
    """x W + x A B: W is frozen, B begins at 0."""

    def __init__(self, base: nn.Linear, rank: int = RANK) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attend = Lora(nn.Linear(WIDTH, 3 * WIDTH))
        self.mix = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH)
        )
        self.norm.requires_grad_(False)
        self.mix.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.attend(self.norm(x)).chunk(3, dim=-1)
        x = x + scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.mix(x)


class Transformer(nn.Module):
    """Next tokens; the embedding is frozen, and tied to the output layer."""

    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.5)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight
        self.embedding.requires_grad_(False)

    def forward(self, input_ids: Tensor) -> Output:
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = block(x)
        return Output(self.head(x))


class WithNorm(Transformer):
    """The same with a frozen batch normalisation, whose statistics are frozen with it."""

    def __init__(self) -> None:
        super().__init__()
        self.scaled = nn.BatchNorm1d(VOCABULARY).requires_grad_(False)

    def forward(self, input_ids: Tensor) -> Output:
        logits = super().forward(input_ids).logits
        return Output(self.scaled(logits.flatten(0, 1)).view(logits.shape))


def loss(outputs: Output, targets: Tensor) -> Tensor:
    return cross_entropy(outputs.logits.flatten(0, 1), targets.flatten())


def accuracy(outputs: Output, targets: Tensor) -> Tensor:
    return (outputs.logits.argmax(-1) == targets).float().mean(1)


def task(model=Transformer, clients: int = 4, samples: int = 40) -> fedpace.Task:
    """Sequences that count up, with a client's own first token."""
    draw = np.random.default_rng(0)
    starts = draw.integers(VOCABULARY, size=samples)[:, None]
    tokens = torch.from_numpy((starts + np.arange(LENGTH + 1)) % VOCABULARY)
    pair = {"input_ids": tokens[:, :-1]}, tokens[:, 1:]
    shares = np.array_split(np.arange(samples), clients)
    return fedpace.Task(model, pair, pair, shares, loss=loss, accuracy=accuracy, name="tokens")
