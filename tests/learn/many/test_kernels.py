"""Triton's kernels beside torch's operators.

They run on a GPU, or in Triton's interpreter: `make test-kernels`.
"""

import os

import pytest
import torch
from torch.nn.functional import conv2d, cross_entropy

from fedpace.learn.many.stacks.convolutions import StackedConvolution as Convolutions
from fedpace.learn.many.stacks.custom_kernels import usable
from fedpace.learn.many.stacks.operators.cross_entropy import StackedCrossEntropy
from fedpace.learn.many.stacks.operators.depthwise import StackedDepthwise
from fedpace.learn.many.stacks.operators.gru import GruRecurrence
from fedpace.learn.many.stacks.operators.packed_attention import StackedAttention
from fedpace.learn.model.attention import attend_packed

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

pytest.importorskip("triton", reason="needs triton, which comes with torch for CUDA")
pytestmark = [] if INTERPRETED else pytest.mark.gpu

DEVICE = "cpu" if INTERPRETED else "cuda"

if INTERPRETED:
    from triton.runtime import interpreter

    def _with_bounds(tensor, scope, patch=interpreter._patch_lang_tensor):
        """Let loops end at a number that was loaded: to numpy 2.4 an array of one is none."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = _with_bounds

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


@pytest.mark.parametrize(
    "shape", [(2, 16, 8, 8, 32, 3, 3, 2, (1, 1)), (3, 32, 6, 5, 16, 3, 3, 1, (1, 1))]
)
@pytest.mark.parametrize("exact", [True, False])
def test_gradients_of_images_are_added_to_others(shape, exact):
    from fedpace.learn.many.kernels import convolution

    *sizes, stride, padding = shape
    x, weights, bias = (one.detach() for one in tensors(*sizes))
    slopes = torch.randn_like(Convolutions.apply(x, weights, bias, stride, padding, exact))
    how = slopes, weights, stride, padding, x.shape[3:], exact
    expected, into = x + convolution.images_of(*how), x.clone()
    found = convolution.images_of(*how, into)
    assert found is into
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "shape", [(2, 4, 7, 5, 16, 3, 3, 2, (1, 1)), (2, 16, 8, 8, 32, 3, 3, 2, (1, 1))]
)
@pytest.mark.parametrize("exact", [True, False])
def test_gradients_of_a_shortcut_are_added_to_those_of_images(shape, exact):
    from fedpace.learn.many.kernels import convolution

    *sizes, stride, padding = shape
    x, weights, bias = (one.detach() for one in tensors(*sizes))
    slopes = torch.randn_like(Convolutions.apply(x, weights, bias, stride, padding, exact))
    how = slopes, weights, stride, padding, x.shape[3:], exact
    expected = convolution.images_of(*how)
    more = torch.randn_like(slopes)[:, :, : x.shape[2]]
    expected[..., ::stride, ::stride] += more
    torch.testing.assert_close(convolution.images_of(*how, more=more), expected)


def test_a_client_gets_the_same_bits_whoever_is_beside_it():
    x, weights, bias = (one.detach() for one in tensors(3, 4, 9, 9, 5, 3, 3))
    how = 1, (1, 1), True
    together = Convolutions.apply(x, weights, bias, *how)
    for client in range(len(x)):
        one = slice(client, client + 1)
        assert torch.equal(together[one], Convolutions.apply(x[one], weights[one], bias[one], *how))


DEPTHWISE = [  # samples, channels, height, width, high, wide, stride, padding
    (5, 3, 8, 8, 3, 3, (1, 1), (1, 1)),
    (9, 2, 9, 7, 3, 3, (2, 2), (1, 1)),
    (2, 2, 12, 12, 5, 5, (1, 1), (2, 2)),
    (2, 3, 7, 9, 1, 3, (2, 3), (0, 1)),
    (3, 2, 6, 6, 2, 2, (2, 2), (2, 0)),
    (2, 2, 1, 5, 3, 3, (2, 2), (1, 2)),
]
if not INTERPRETED:  # of a MobileNet
    DEPTHWISE += [
        (32, 32, 32, 32, 3, 3, (2, 2), (1, 1)),
        (32, 64, 16, 16, 3, 3, (2, 2), (1, 1)),
        (32, 128, 8, 8, 3, 3, (2, 2), (1, 1)),
        (32, 32, 32, 32, 3, 3, (1, 1), (1, 1)),
        (7, 64, 14, 14, 7, 7, (1, 1), (3, 3)),
    ]


@pytest.mark.parametrize("shape", DEPTHWISE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_outputs_and_gradients_are_those_of_a_depthwise_convolution(shape, dtype):
    samples, channels, height, width, high, wide, *how = shape
    draw = torch.Generator().manual_seed(0)
    clients = (2,)
    sizes = (samples, channels, height, width), (channels, high, wide), (channels,)
    given = [
        torch.randn(clients + size, generator=draw).to(DEVICE, dtype).requires_grad_() for size in sizes
    ]
    plain = [one.detach().double().requires_grad_() for one in given]
    each = zip(plain[0], plain[1].unsqueeze(2), plain[2], strict=True)
    outputs = torch.stack([conv2d(*one, *how, groups=channels) for one in each])
    slopes = torch.randn(outputs.shape, generator=draw).to(DEVICE, dtype)
    expected = with_gradients(outputs, plain, slopes.double())
    found = with_gradients(StackedDepthwise.apply(*given, *how), given, slopes)
    assert away(found, expected) < (3e-6 if dtype == torch.float32 else 1e-2)
    assert all(one.dtype == dtype for one in found)
    alone = StackedDepthwise.apply(*(one[1:].detach() for one in given), *how)
    assert torch.equal(found[0][1:], alone)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(("samples", "width"), [(3, 5), (16, 64)])
def test_steps_of_a_gru_are_those_without_kernels(samples, width, axis, biased):
    draw = torch.Generator().manual_seed(0)
    steps = (4, samples) if axis == 1 else (samples, 4)
    sizes = (*steps, 3 * width), (samples, width), (3 * width, width), (3 * width,)
    given = [
        torch.randn((2, *size), generator=draw).to(DEVICE).mul_(0.3).requires_grad_() for size in sizes
    ]
    given = given if biased else given[:3]
    plain = [one.detach().double().requires_grad_() for one in given]
    outputs = GruRecurrence.apply(*plain[:3], plain[3] if biased else None, axis, False)
    slopes = torch.randn(outputs.shape, generator=draw).to(DEVICE)
    expected = with_gradients(outputs, plain, slopes.double())
    found = GruRecurrence.apply(*given[:3], given[3] if biased else None, axis, True)
    assert away(with_gradients(found, given, slopes), expected) < 1e-5


def counted(found, counts):
    """The samples that count of [clients, samples, ...], the clients' one after the other."""
    return torch.cat([one[:count] for one, count in zip(found, counts.tolist(), strict=True)])


FILLED = [shape for shape in SHAPES if shape[0] > 1]


@pytest.mark.parametrize("shape", FILLED)
@pytest.mark.parametrize("exact", [True, False])
def test_samples_that_fill_up_a_batch_change_nothing_of_a_convolution(shape, exact):
    *sizes, stride, padding = shape
    given, samples = [one.detach() for one in tensors(*sizes)], sizes[0]
    counts = torch.tensor([samples, 1, samples - 1], dtype=torch.int32, device=DEVICE)
    plain = [one.clone().requires_grad_() for one in given]
    outputs = Convolutions.apply(*plain, stride, padding, exact)
    slopes = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    filled = torch.arange(samples, device=DEVICE) >= counts[:, None]
    slopes[filled] = 0  # the loss leaves them out
    expected = with_gradients(outputs, plain, slopes)
    given[0][filled] = 1e9
    given = [one.requires_grad_() for one in given]
    found = Convolutions.apply(*given, stride, padding, exact, counts)
    found = with_gradients(found, given, slopes)
    assert all(one.isfinite().all() for one in found)
    pairs = [[counted(one, counts), *rest] for one, *rest in (found, expected)]
    assert away(*pairs) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(3, 11, 5), (2, 8, 300), (1, 1, 1)])
def test_biases_are_added_to_every_row_of_a_client(shape, dtype):
    from fedpace.learn.many.kernels import dense

    draw = torch.Generator().manual_seed(0)
    y, bias = (torch.randn(size, generator=draw).to(DEVICE, dtype) for size in (shape, shape[::2]))
    expected = y + bias[:, None]
    dense.add_bias(y, bias)
    # Triton's interpreter cuts numbers off where a GPU rounds them.
    assert away([y], [expected.double()]) < (1e-7 if dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("length", "heads", "width"), [(20, 4, 64), (1, 2, 16), (33, 1, 24), (64, 2, 8)]
)
@pytest.mark.parametrize(("exact", "tolerance"), [(True, 1e-5), (False, 5e-3)])
def test_outputs_and_gradients_are_those_of_attention(length, heads, width, causal, exact, tolerance):
    draw = torch.Generator().manual_seed(0)
    parts = torch.randn(3, length, 3, heads, width, generator=draw).to(DEVICE).requires_grad_()
    slopes = torch.randn(3, length, heads * width, generator=draw).to(DEVICE)
    plain = parts.detach().double().requires_grad_()
    expected = with_gradients(attend_packed(plain, causal), [plain], slopes.double())
    found = with_gradients(StackedAttention.apply(parts, causal, exact).flatten(2), [parts], slopes)
    assert away(found, expected) < tolerance
    alone = parts[1:].detach()
    assert torch.equal(StackedAttention.apply(alone, causal, exact).flatten(2), found[0][1:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("classes", [300, 1024, 5060])
def test_losses_and_gradients_are_those_of_cross_entropy(classes, dtype):
    draw = torch.Generator().manual_seed(0)
    scores = (30 * torch.randn(7, classes, generator=draw)).to(DEVICE, dtype).requires_grad_()
    targets = torch.randint(0, classes, (7,), generator=draw).to(DEVICE)
    targets[2] = -100
    plain = scores.detach().double().requires_grad_()
    slopes = torch.randn(7, generator=draw).to(DEVICE)
    outputs = cross_entropy(plain, targets, reduction="none")
    expected = with_gradients(outputs, [plain], slopes.double())
    found = with_gradients(StackedCrossEntropy.apply(scores, targets, -100), [scores], slopes)
    assert away(found[:1], expected[:1]) < 1e-6
    assert away(found[1:], expected[1:]) < (3e-5 if dtype == torch.float32 else 1e-2)
    assert [one.dtype for one in found] == [torch.float32, dtype]


@pytest.mark.skipif(INTERPRETED, reason="needs a CUDA GPU")
def test_a_gpu_has_kernels():
    assert usable(torch.device("cuda", 0))
