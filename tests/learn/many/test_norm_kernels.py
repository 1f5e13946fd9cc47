"""Triton's kernels of normalisations beside torch's operators; see test_kernels."""

import pytest
import torch
from torch.nn.functional import batch_norm, group_norm

from fedpace.learn.many.stacks.normalisation import StackedNormalisation as Normalisations
from fedpace.learn.many.stacks.operators.batch_norm_kernels import NormalisedBatches
from tests.learn.many.test_kernels import DEVICE, INTERPRETED, away, counted, with_gradients

pytestmark = [] if INTERPRETED else pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("channels", "groups", "places"), [(6, 2, 25), (16, 8, 1024), (5, 5, 1), (3, 1, 49), (200, 1, 1)]
)
@pytest.mark.parametrize("then", ["", "relu", "relu of more"])
def test_outputs_and_gradients_are_those_of_group_normalisation(channels, groups, places, dtype, then):
    draw = torch.Generator().manual_seed(0)
    x = (3 + torch.randn(2, 3, channels, places, generator=draw)).to(DEVICE, dtype).requires_grad_()
    factors, shifts = (
        torch.randn(2, channels, generator=draw).to(DEVICE).requires_grad_() for _ in range(2)
    )
    given = [x, factors, shifts]
    if "more" in then:
        given.append(torch.randn(x.shape, generator=draw).to(DEVICE).requires_grad_())
    slopes = torch.randn(x.shape, generator=draw).to(DEVICE)
    plain = [one.detach().double().requires_grad_() for one in given]
    outputs = torch.stack(
        [group_norm(a, groups, b, c, 1e-3) for a, b, c in zip(*plain[:3], strict=True)]
    )
    if "more" in then:
        outputs = outputs + plain[3]
    if "relu" in then:
        outputs = outputs.relu()
    expected = with_gradients(outputs, plain, slopes.double())
    more = given[3] if "more" in then else None
    found = Normalisations.apply(x, factors, shifts, more, groups, 1e-3, "relu" in then)[0]
    assert found.dtype == torch.float32
    gradients = with_gradients(found, given, slopes)
    # That of an image is rounded to the image's own type.
    assert away([*gradients[:1], *gradients[2:]], [*expected[:1], *expected[2:]]) < 1e-5
    assert away(gradients[1:2], expected[1:2]) < (1e-5 if dtype == torch.float32 else 1e-2)
    assert gradients[1].dtype == dtype


BATCHES = [(4, 6, 25), (32, 1, 1024), (7, 5, 1), (3, 1, 5000), (33, 1, 1100), (8, 3, 64)]
if not INTERPRETED:  # of ResNet-20 and of ResNet-18, whole
    BATCHES += [(32, 16, 1024), (32, 32, 256), (32, 64, 64), (32, 512, 16), (128, 64, 1024)]


def batches(samples, channels, places, dtype, more):
    """Images, factors and shifts, and what is added; and running means and variances."""
    draw = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=draw)

    given = [3 + normal(2, samples, channels, places), normal(2, channels), normal(2, channels)]
    given += [normal(*given[0].shape)] if more else []
    kinds = dtype, torch.float32, torch.float32, dtype
    given = [one.to(DEVICE, kind).requires_grad_() for one, kind in zip(given, kinds, strict=False)]
    return given, (normal(2, channels).to(DEVICE), normal(2, channels).exp().to(DEVICE))


def expected_of(given, running, real, held, training, eps, then):
    """What torch gives in float64, client by client, before ReLU; running statistics are moved."""
    outputs = []
    for client in range(2):
        x, factor, shift = (one[client] for one in given[:3])
        statistics = [one[client] for one in running]
        if not training or held[client]:
            found = batch_norm(x, *statistics, factor, shift, False, 0.3, eps)
        else:
            # What fills up is normalised by the statistics of the others, too.
            some = x[: int(real[client].sum())]
            batch_norm(some, *statistics, None, None, True, 0.3, eps)
            mean, variance = some.mean((0, 2)), some.var((0, 2), correction=0)
            found = (x - mean[:, None]) * (variance[:, None] + eps).rsqrt() * factor[:, None]
            found = found + shift[:, None]
        outputs.append(found + given[3][client] if "more" in then else found)
    return torch.stack(outputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", BATCHES)
@pytest.mark.parametrize("then", ["", "relu", "relu of more"])
@pytest.mark.parametrize("how", ["training", "short and held", "evaluation"])
def test_outputs_and_gradients_are_those_of_batch_normalisation(shape, dtype, then, how):
    given, running = batches(*shape, dtype, "more" in then)
    training, real, held = how != "evaluation", None, None
    real = torch.ones(2, shape[0], device=DEVICE)
    held = torch.zeros(2, dtype=torch.uint8, device=DEVICE)
    some = how == "short and held"
    if some:
        real[0, -1], held[1] = 0, 1
    slopes = torch.randn(given[0].shape, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)
    plain = [one.detach().double().requires_grad_() for one in given]
    moved = [one.double() for one in running]
    outputs = expected_of(plain, moved, real, held, training, 1e-3, then)
    if "relu" in then:
        slopes *= outputs.abs() > 1e-3  # nearer to the kink a slope is up to rounding
        outputs = outputs.relu()
    expected = with_gradients(outputs, plain, slopes.double())
    more = given[3] if "more" in then else None
    stack = (real, held) if some else (None, None)
    found = NormalisedBatches.apply(
        *given[:3], more, running, *stack, training, 0.3, 1e-3, "relu" in then
    )
    gradients = with_gradients(found, given, slopes)
    assert [one.dtype for one in gradients] == [dtype, dtype, torch.float32, torch.float32, dtype][
        : len(gradients)
    ]
    within = 3e-5 if dtype == torch.float32 else 1e-2
    assert away(gradients, expected) < within
    assert away(running, moved) < 1e-5


def test_a_large_mean_costs_no_digits_of_a_variance_and_neither_does_a_spike():
    (x, factors, shifts), _ = batches(33, 2, 1100, torch.float32, False)
    with torch.no_grad():
        x.mul_(0.1).add_(100)
        x[0, 0, 0, 0] = 1e4
    found = NormalisedBatches.apply(
        x, factors, shifts, None, None, None, None, True, 0.1, 1e-5, False
    ).detach()
    each = zip(x.double(), factors.double(), shifts.double(), strict=True)
    expected = torch.stack([batch_norm(a, None, None, b, c, True) for a, b, c in each]).detach()
    assert away([found], [expected]) < 1e-3


def test_a_client_is_normalised_to_the_same_bits_whoever_is_beside_it():
    for shape in ((5, 3, 30), (33, 2, 1100)):
        given, running = batches(*shape, torch.float32, True)
        given = [one.detach() for one in given]
        alone = [one[1:].clone() for one in running]
        how = None, None, True, 0.1, 1e-5, True
        found = NormalisedBatches.apply(*given, running, *how)
        assert torch.equal(found[1:], NormalisedBatches.apply(*(one[1:] for one in given), alone, *how))
        assert torch.equal(running[1][1:], alone[1])


@pytest.mark.parametrize(("rows", "channels"), [(37, 200), (5, 5000), (40, 1)])
def test_slopes_of_many_rows_are_those_of_layer_norms(rows, channels):
    draw = torch.Generator().manual_seed(0)
    sizes = (2, rows, channels, 1), (2, channels), (2, channels)
    given = [torch.randn(size, generator=draw).add_(1).to(DEVICE).requires_grad_() for size in sizes]
    slopes = torch.randn(sizes[0], generator=draw).to(DEVICE)
    plain = [one.detach().double().requires_grad_() for one in given]
    outputs = torch.stack([group_norm(a, 1, b, c, 1e-3) for a, b, c in zip(*plain, strict=True)])
    expected = with_gradients(outputs, plain, slopes.double())
    found = with_gradients(Normalisations.apply(*given, None, 1, 1e-3, False)[0], given, slopes)
    assert away(found[:1] + found[2:], expected[:1] + expected[2:]) < 1e-5
    assert (found[1] - expected[1]).abs().max() < 1e-4
    alone = [one[1:].detach().requires_grad_() for one in given]
    again = with_gradients(Normalisations.apply(*alone, None, 1, 1e-3, False)[0], alone, slopes[1:])
    assert all(torch.equal(one[1:], other) for one, other in zip(found, again, strict=True))


@pytest.mark.parametrize("then", ["", "relu", "relu of more"])
@pytest.mark.parametrize(("channels", "groups", "places"), [(6, 2, 25), (16, 8, 1024), (5, 5, 1)])
def test_samples_that_fill_up_a_batch_change_nothing_of_a_norm(channels, groups, places, then):
    draw = torch.Generator().manual_seed(0)
    shapes = (2, 5, channels, places), (2, channels), (2, channels), (2, 5, channels, places)
    given = [torch.randn(shape, generator=draw).to(DEVICE) for shape in shapes]
    given = given if "more" in then else given[:3]
    counts = torch.tensor([2, 5], dtype=torch.int32, device=DEVICE)
    filled = torch.arange(5, device=DEVICE) >= counts[:, None]
    slopes = torch.randn(shapes[0], generator=draw).to(DEVICE)
    slopes[filled] = 0
    how = groups, 1e-3, "relu" in then
    found = []
    for some in (None, counts):
        own = [one.clone() for one in given]
        if some is not None:
            own[0][filled] = torch.nan
        own = [one.requires_grad_() for one in own]
        outputs = Normalisations.apply(*own[:3], own[3] if "more" in then else None, *how, some)[0]
        found.append(with_gradients(outputs, own, slopes))
    assert found[1][0].isfinite().all()
    pairs = [[counted(one, counts), *rest] for one, *rest in found]
    # Nothing but rounding is left of the gradient of a lone number.
    assert away(*([one for one in each if one.norm() > 1e-3] for each in pairs)) < 1e-6
