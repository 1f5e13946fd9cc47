"""Checks of a received update, the first step of aggregation: a PeerError says what is wrong with it.

A client is a stranger: what it sends is used only after every check here that applies to it. None
changes an update; one whose norm is over the bound is refused, not clipped. An update that a simulation
has trained is no stranger's: where its numbers are not finite the run has diverged.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from fedpace.core.errors import Diverged, PeerError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Update, Weights

LARGEST = 1e30
"""Bound of norms and of what clients measure: sums and squares of such numbers stay finite."""


class UnfitNumbers(PeerError):
    """Numbers of an update that no use can be made of; the model that it was made from may be why."""


@dataclass(frozen=True, slots=True)
class UpdateNorms:
    """Sizes of an update, as L2 norms. depth, width: of the part of the model that it carries.

    params: of its deltas; buffers: of the way from its base's buffers to its own; params_scale,
    buffers_scale: what the base has there, or 1 a number where that is more.
    """

    depth: int
    width: float | None
    params: float
    buffers: float
    params_scale: float
    buffers_scale: float


_TYPES = {"params": torch.float32, "buffers": torch.float32, "counters": torch.int64}


def check_cut(task: int, update: Update, layout: Layout) -> None:
    """Refuse a depth or a width that no part of the model has."""
    depth, width = update.depth, update.width
    if not 1 <= depth <= layout.depth:
        raise PeerError(f"update of task {task} has depth {depth}; expected 1 to {layout.depth}")
    if width is not None and not (0 < width <= 1 and depth == layout.depth):
        raise PeerError(
            f"update of task {task} has width {width} and depth {depth}; "
            f"expected a share of channels, in (0, 1], of all {layout.depth} layers"
        )


def check_width_offered(task: int, update: Update, widths: Collection[float] | None) -> None:
    """Refuse a width other than 1 that no task of the run asks for; None: any may be."""
    if widths is not None and update.width not in (None, 1.0, *widths):
        raise PeerError(f"update of task {task} has width {update.width}, which was not asked for")


def check_effort(task: int, update: Update) -> None:
    """Refuse an effort that deltas cannot be divided by."""
    if not (math.isfinite(update.effort) and update.effort > 0):
        raise PeerError(f"update of task {task} has effort {update.effort}; expected a number above 0")


def check_shapes(task: int, update: Update, cut_layout: Layout) -> None:
    """Refuse vectors of another size or type than the trained part of the model.

    cut_layout: of the thinner model where the update has a width.
    """
    start, end = cut_layout.start(update.depth), cut_layout.start(0)
    vectors = (update.params, update.buffers, update.counters)
    for (kind, dtype), vector, first, last in zip(_TYPES.items(), vectors, start, end, strict=True):
        size = last - first
        if vector.shape != (size,) or vector.dtype != dtype:
            width = f" and width {update.width:g}" if update.width else ""
            raise PeerError(
                f"update of task {task} has {kind} of shape {tuple(vector.shape)} and type "
                f"{vector.dtype}; at depth {update.depth}{width} the model has ({size},) and {dtype}"
            )
    gradient, whole = update.gradient, (end.params,)
    if gradient is not None and (gradient.shape != whole or gradient.dtype != torch.float32):
        raise PeerError(
            f"update of task {task} has a gradient of shape {tuple(gradient.shape)} and type "
            f"{gradient.dtype}; all layers of its model have {whole} and {torch.float32}"
        )


def check_finite(task: int, update: Update, buffers: Tensor, places: Tensor | slice) -> None:
    """Refuse infinities and NaN; buffers may be infinite where the server's are, as in masks.

    buffers: the server's; places: of the update's own among them.
    """
    for kind in ("params", "buffers"):
        vector: Tensor = getattr(update, kind)
        finite = is_finite(vector)
        if not finite and kind == "buffers":
            kept = buffers.cpu()[places] == vector.cpu()
            finite = bool((kept | torch.isfinite(vector.cpu())).all())
        if not finite:
            raise UnfitNumbers(
                f"update of task {task} has {kind} that are not finite; its training diverged, "
                "try a smaller learning rate"
            )


def check_converges(task: int, update: Update, buffers: Tensor, places: Tensor | slice) -> None:
    """Diverged where `check_finite` refuses an update: one that was trained here, by nobody strange."""
    try:
        check_finite(task, update, buffers, places)
    except PeerError as error:
        raise Diverged(str(error)) from None


def check_norm(task: int, update: Update, bound: float | None) -> None:
    """Refuse deltas whose L2 norm is over the bound; None: over LARGEST."""
    bound, norm = LARGEST if bound is None else bound, l2_norm(update.params)
    if norm > bound:
        raise UnfitNumbers(f"update of task {task} has norm {norm:.6g}; at most {bound:g} is allowed")


def measure_norms(
    update: Update, base: Weights, params_at: Tensor | slice, buffers_at: Tensor | slice
) -> UpdateNorms:
    """Measure an update against the weights that it was made from. at: its numbers' places in them."""
    old = base.buffers[buffers_at]
    new = update.buffers.cpu()
    way = torch.where(old == new, torch.zeros_like(old), new - old)  # some are infinite, as in masks
    params, buffers = base.params[params_at], old[torch.isfinite(old)]
    return UpdateNorms(
        update.depth,
        update.width,
        l2_norm(update.params),
        l2_norm(way),
        max(l2_norm(params), math.sqrt(len(params))),
        max(l2_norm(buffers), math.sqrt(len(buffers))),
    )


def check_measured(task: int, update: Update) -> None:
    """Refuse an effort below a step, and efforts and estimates over LARGEST."""
    found = () if update.estimates is None else astuple(update.estimates)
    wild = any(math.isfinite(one) and abs(one) > LARGEST for one in found)
    if wild or not 0.5 <= update.effort <= LARGEST:
        raise PeerError(
            f"update of task {task} has effort {update.effort} and estimates {found}; expected an "
            f"effort of 1 or more, and no number above {LARGEST:g}"
        )


def is_finite(vector: Tensor) -> bool:
    """Tell if all numbers are finite; a finite sum says so in one pass and without a copy."""
    if not vector.numel() or math.isfinite(float(vector.sum())):
        return True
    return bool(torch.isfinite(vector).all())


def are_finite(vectors: Iterable[Tensor]) -> bool:
    """Tell if the sum of each vector is finite, and so are its numbers; a device is waited for once.

    A sum of large finite numbers may be infinite: then this is False, and `is_finite` knows.
    """
    sums = [one.sum() for one in vectors if one.numel()]
    return not sums or all(map(math.isfinite, torch.stack(sums).tolist()))


def l2_norm(vector: Tensor) -> float:
    """Root of the sum of squares, in float64."""
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))
