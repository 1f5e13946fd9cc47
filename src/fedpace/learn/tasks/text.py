"""Text tasks: the next character, or the next word."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from torch import Tensor

from fedpace.core.errors import Checked, ConfigError, Count, Fraction, unknown
from fedpace.data.downloads.root import find_dataset_folder
from fedpace.data.shares import Shares
from fedpace.data.text.leaf import load_leaf
from fedpace.data.text.roles import load_roles
from fedpace.data.text.sequences import TextSet
from fedpace.data.text.vocabulary import PAD, UNKNOWN
from fedpace.learn.metrics.loss import TokenLoss
from fedpace.learn.metrics.metric import Metric
from fedpace.learn.metrics.ready import argmax_hits, perplexity
from fedpace.learn.tasks.images import ROOT
from fedpace.learn.tasks.models.text import MODELS, build_text_model
from fedpace.learn.tasks.task import Task


@dataclass(frozen=True, slots=True)
class TextSettings(Checked):
    model: Annotated[str, " or ".join(MODELS)] = "lstm"
    embedding: Annotated[Count | None, "width of embeddings; unset: 8 for lstm, 128 for albert"] = None
    hidden: Annotated[Count | None, "width of the layers; unset: 256"] = None


@dataclass(frozen=True, slots=True)
class ShakespeareSettings(TextSettings):
    tokens: Annotated[Literal["characters", "words"], "what is predicted"] = "characters"
    length: Annotated[Count, "tokens of a sequence"] = 80
    vocabulary: Annotated[Count | None, "most frequent tokens that are known; unset: all"] = None
    min_characters: Annotated[Count, "roles that say less are left out"] = 1000
    test_share: Annotated[Fraction, "of each role's lines, the last ones, to test on"] = 0.2
    by: Annotated[
        Literal["role", "partition"], "role: each is a client; partition: as [partition] says"
    ] = "role"
    root: Annotated[Path | None, ROOT] = None


class Shakespeare:
    """Next characters or words of Shakespeare's roles (Tiny Shakespeare), from the data root."""

    Settings = ShakespeareSettings

    @staticmethod
    def build(settings: ShakespeareSettings, clients: int) -> Task:
        data = load_roles(
            find_dataset_folder("shakespeare", settings.root),
            settings.tokens,
            settings.length,
            settings.vocabulary,
            settings.min_characters,
            settings.test_share,
        )
        return text_task("shakespeare", settings, data, settings.by == "role")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafSettings(TextSettings):
    folder: Annotated[Path, "folder that holds LEAF's train/ and test/ with their .json files"]
    vocabulary: Annotated[Count | None, "most frequent tokens that are known; unset: all"] = 30_000
    min_tokens: Annotated[Count, "users with less to train on are left out"] = 20
    predict: Annotated[
        Literal["all", "last"], "of strings of characters: every next one, or the one behind them"
    ] = "last"


class Leaf:
    """Next characters or words of users, from files of LEAF's Shakespeare or Reddit (JSON)."""

    Settings = LeafSettings

    @staticmethod
    def build(settings: LeafSettings, clients: int) -> Task:
        data = load_leaf(settings.folder, settings.vocabulary, settings.min_tokens, settings.predict)
        return text_task("leaf", settings, data)


def text_task(name: str, settings: TextSettings, data: TextSet, by_user: bool = True) -> Task:
    """A task from token sequences, and a model by name; tested by accuracy and perplexity a token.

    by_user: each user is a client.
    """
    if settings.model not in MODELS:
        raise unknown("model", settings.model, MODELS)
    tokens, length = len(data.vocabulary), data.train.x.shape[1]
    widths = (settings.embedding, settings.hidden)
    if not (data.test.y != PAD).any():
        raise ConfigError(f"{name} has nothing to predict in its test text; give more of it")
    return Task(
        partial(build_text_model, settings.model, tokens, length, *widths),
        (data.train.x, data.train.y),
        (data.test.x, data.test.y),
        Shares.one_each(data.train.user) if by_user else None,
        TokenLoss(ignore=PAD),
        name=name,
        metrics=[known_accuracy(), perplexity(ignore=PAD)],
        client_tests=Shares.for_same(data.train.user, data.test.user) if by_user else None,
    )


def known_accuracy() -> Metric:
    """Share of tokens that are right, padding left out; the unknown is never right, as in LEAF."""
    return Metric("accuracy", _known_hits, over="tokens", ignore=PAD, share=True)


def _known_hits(outputs: Any, targets: Tensor) -> Tensor:
    return argmax_hits(outputs, targets) & (targets != UNKNOWN)
