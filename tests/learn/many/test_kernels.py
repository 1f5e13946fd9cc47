"""Triton's kernels beside torch's operators.

They run on a GPU, or in Triton's interpreter: `make test-kernels`.
"""

import os

import pytest
import torch
from torch.nn.functional import conv2d, group_norm

from fedpace.learn.many.stacks.convolutions import StackedConvolution as Convolutions
from fedpace.learn.many.stacks.custom_kernels import usable
from fedpace.learn.many.stacks.normalisation import StackedNormalisation as Normalisations

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

pytest.importorskip("triton", reason="needs triton, which comes with torch for CUDA")
pytestmark = [] if INTERPRETED else pytest.mark.gpu

DEVICE = "cpu" if INTERPRETED else "cuda"

SMALL = [  # samples, channels, height, width, out, high, wide, stride, padding
    (3, 1, 12, 12, 5, 5, 5, 1, (0, 0)),
    (2, 16, 8, 8, 32, 3, 3, 2, (1, 1)),
    (2, 4, 7, 9, 6, 1, 3, 2, (0, 1)),
    (40, 2, 12, 12, 3, 3, 3, 1, (1, 1)),  # more than one span,
    (1, 3, 4, 16, 70, 3, 3, 1, (1, 1)),
    (2, 17, 6, 5, 16, 3, 3, 1, (1, 1)),
    (1, 33, 7, 6, 9, 3, 2, 3, (2, 1)),
]
LARGE = [  # of ResNet-20 and of the CNN, which Triton has made wrong code of in other blocks
    (32, 3, 32, 32, 16, 3, 3, 1, (1, 1)),
    (32, 16, 32, 32, 16, 3, 3, 1, (1, 1)),
    (32, 16, 32, 32, 32, 3, 3, 2, (1, 1)),
    (32, 32, 16, 16, 32, 3, 3, 1, (1, 1)),
    (7, 32, 16, 16, 64, 3, 3, 2, (1, 1)),
    (32, 64, 8, 8, 64, 3, 3, 1, (1, 1)),
    (5, 32, 12, 12, 64, 5, 5, 1, (0, 0)),
    (4, 64, 16, 16, 128, 3, 3, 1, (1, 1)),
]
SHAPES = SMALL if INTERPRETED else SMALL + LARGE


def tensors(samples, channels, height, width, out, high, wide, dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=draw).to(DEVICE, dtype).requires_grad_()

    clients = 3
    return (
        normal(clients, samples, channels, height, width),
        normal(clients, out, channels, high, wide),
        normal(clients, out),
    )


def with_gradients(outputs, given, slopes):
    return [outputs, *torch.autograd.grad(outputs, given, slopes)]


def away(found, expected):
    """The largest distance of outputs and gradients, as a share of their length if they have one."""
    pairs = [(a.detach().double(), b.detach()) for a, b in zip(found, expected, strict=True)]
    return max(float((a - b).norm() / b.norm().clamp(min=1e-6)) for a, b in pairs)


KINDS = {
    "float32": (torch.float32, True, 3e-6),
    "tf32": (torch.float32, False, 2e-3),
    "bf16": (torch.bfloat16, False, 1e-2),
}
if INTERPRETED:
    del KINDS["bf16"]  # whose products the interpreter makes of whole numbers


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "exact", "tolerance"), KINDS.values(), ids=KINDS)
def test_outputs_and_gradients_are_those_of_a_convolution(shape, dtype, exact, tolerance):
    *sizes, stride, padding = shape
    given = tensors(*sizes, dtype=dtype)
    plain = [one.detach().double().requires_grad_() for one in given]
    each = zip(*plain, strict=True)
    outputs = torch.stack([conv2d(*one, stride=stride, padding=padding) for one in each])
    slopes = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)
    expected = with_gradients(outputs, plain, slopes.double())
    found = with_gradients(Convolutions.apply(*given, stride, padding, exact), given, slopes)
    assert away(found, expected) < tolerance
    assert all(one.dtype == dtype for one in found)


def test_a_client_gets_the_same_bits_whoever_is_beside_it():
    x, weights, bias = (one.detach() for one in tensors(3, 4, 9, 9, 5, 3, 3))
    how = 1, (1, 1), True
    together = Convolutions.apply(x, weights, bias, *how)
    for client in range(len(x)):
        one = slice(client, client + 1)
        assert torch.equal(together[one], Convolutions.apply(x[one], weights[one], bias[one], *how))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("channels", "groups", "places"), [(6, 2, 25), (16, 8, 1024), (5, 5, 1), (3, 1, 49)]
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


@pytest.mark.skipif(INTERPRETED, reason="needs a CUDA GPU")
def test_a_gpu_has_kernels():
    assert usable(torch.device("cuda", 0))
