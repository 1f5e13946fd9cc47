"""Kernels of stacks that compute client by client in torch, in place of Triton's."""

from collections import Counter

import torch
from torch.nn.functional import conv2d, cross_entropy, group_norm
from torch.nn.grad import conv2d_input, conv2d_weight

from fedpace.learn.model.attention import attend_packed


def real(images, counts):
    """Images of [clients, samples, ...] with nothing in those that only fill up a batch."""
    if counts is None:
        return images
    shown = torch.arange(images.shape[1]) < counts[:, None]
    return torch.where(shown.view(*shown.shape, *[1] * (images.ndim - 2)), images, 0)


class Slow:
    """The kernels, client by client in torch; `calls` counts them."""

    def __init__(self):
        self.calls = Counter()

    def convolve(self, x, weights, bias, stride, padding, size, exact, counts):
        self.calls["counted"] += counts is not None
        self.calls["convolve"] += 1
        biases = [None] * len(x) if bias is None else bias
        each = zip(x, weights, biases, strict=True)
        found = torch.stack([conv2d(*one, stride=stride, padding=padding) for one in each])
        assert found.shape[3:] == size
        return real(found, counts)

    def images_of(self, slopes, weights, stride, padding, size, exact, into, counts, more):
        self.calls["images_of"] += 1
        self.calls["images, added"] += into is not None
        self.calls["images, some added"] += more is not None
        shape = slopes.shape[1], weights.shape[2], *size
        each = zip(weights, slopes, strict=True)
        found = torch.stack([conv2d_input(shape, a, b, stride, padding) for a, b in each])
        found = real(found, counts)
        if more is not None:
            found[..., ::stride, ::stride] += more
        return found if into is None else into.add_(found)

    def weights_of(self, x, slopes, high, wide, stride, padding, exact, counts):
        self.calls["weights_of"] += 1
        shape = slopes.shape[2], x.shape[2], high, wide
        each = zip(x, real(slopes, counts), strict=True)
        return torch.stack([conv2d_weight(a, shape, b, stride, padding) for a, b in each])

    def normalise(self, x, factors, shifts, groups, eps, relu, more, counts=None):
        self.calls["normalise"] += 1
        x = real(x, counts)
        each = [group_norm(a, groups, b, c, eps) for a, b, c in zip(x, factors, shifts, strict=True)]
        parts = x.unflatten(2, (groups, -1)).flatten(3)
        scales = (parts.var(3, correction=0) + eps).rsqrt()
        found = torch.stack(each) if more is None else torch.stack(each) + more
        self.calls["relu"] += relu
        self.calls["more"] += more is not None
        return found.relu() if relu else found, parts.mean(3), scales

    def slopes_of(self, x, factors, shifts, means, scales, slopes, relu, y, more, counts=None):
        self.calls["slopes_of"] += 1
        x, slopes = real(x, counts), real(slopes, counts)
        each = 1, 1, x.shape[2] // means.shape[2]
        levels, widths = (one.repeat_interleave(each[2], 2)[..., None] for one in (means, scales))
        values = (x - levels) * widths
        if relu:
            given = values * factors[:, None, :, None] + shifts[:, None, :, None] if y is None else y
            slopes = slopes * (given > 0)
        inner = slopes * factors[:, None, :, None]

        def mean(numbers):
            parts = numbers.unflatten(2, (means.shape[2], -1)).flatten(3).mean(3)
            return parts.repeat_interleave(each[2], 2)[..., None]

        found = (inner - mean(inner) - values * mean(inner * values)) * widths
        added = slopes.clone() if more else None
        return found, (slopes * values).sum((1, 3)), slopes.sum((1, 3)), added


class SlowDepthwise:
    """The kernels of depthwise convolutions, likewise."""

    def __init__(self, calls):
        self.calls = calls

    def convolve(self, x, weights, bias, stride, padding, size):
        self.calls["depthwise"] += 1
        biases = [None] * len(x) if bias is None else bias
        each = zip(x, weights.unsqueeze(2), biases, strict=True)
        found = [conv2d(*one, stride, padding, groups=x.shape[2]) for one in each]
        assert found[0].shape[2:] == size
        return torch.stack(found)

    def images_of(self, slopes, weights, stride, padding, size):
        self.calls["depthwise, images"] += 1
        shape, how = (*slopes.shape[1:3], *size), (stride, padding, 1, slopes.shape[2])
        each = zip(weights.unsqueeze(2), slopes, strict=True)
        return torch.stack([conv2d_input(shape, a, b, *how) for a, b in each])

    def weights_of(self, x, slopes, sides, stride, padding):
        self.calls["depthwise, weights"] += 1
        shape, how = (x.shape[2], 1, *sides), (stride, padding, 1, x.shape[2])
        each = zip(x, slopes, strict=True)
        return torch.stack([conv2d_weight(a, shape, b, *how).squeeze(1) for a, b in each])


class SlowBatches:
    """The kernels of batch normalisation, likewise."""

    def __init__(self, calls):
        self.calls = calls

    def normalise(self, x, factors, shifts, running, real, held, training, momentum, eps, relu, more):
        self.calls["batches"] += 1
        self.calls["batches, relu"] += relu
        self.calls["batches, more"] += more is not None
        self.calls["batches, evaluation"] += not training
        means, scales, shares = (torch.zeros_like(factors) for _ in range(3))
        for client, own in enumerate(x):
            old = [one[client].clone() for one in running]
            means[client], variance = old
            if training and (held is None or not held[client]):
                some = own if real is None else own[real[client] > 0]
                count = some[:, 0].numel()
                variance, means[client] = torch.var_mean(some, (0, 2), correction=0)
                shares[client] = 1 / count
                new = means[client], variance * count / (count - 1)
                for one, before, now in zip(running, old, new, strict=True):
                    one[client] = before + momentum * (now - before)
            scales[client] = (variance + eps).rsqrt()
        values = (x - means[:, None, :, None]) * (scales * factors)[:, None, :, None]
        found = values + shifts[:, None, :, None]
        found = found if more is None else found + more
        return found.relu() if relu else found, means, scales, shares

    def slopes_of(self, x, factors, shifts, means, scales, shares, real, slopes, relu, y, more):
        self.calls["batches, slopes"] += 1
        values = (x - means[:, None, :, None]) * scales[:, None, :, None]
        if relu:
            given = values * factors[:, None, :, None] + shifts[:, None, :, None] if y is None else y
            slopes = slopes * (given > 0)
        of_factors, of_shifts = (slopes * values).sum((1, 3)), slopes.sum((1, 3))
        found = slopes
        if shares is not None:
            part = shares[:, None, :, None] * (1 if real is None else real[:, :, None, None])
            apart = values * of_factors[:, None, :, None] + of_shifts[:, None, :, None]
            found = slopes - part * apart
        found = found * (factors * scales)[:, None, :, None]
        return found, of_factors, of_shifts, None if more is None else slopes.clone()


class SlowGru:
    """The kernels of a GRU's steps, likewise."""

    def __init__(self, calls):
        self.calls = calls

    def forward(self, product, added, state, gate, new, out):
        self.calls["gru"] += 1
        (reset, update, last), (one, two, three) = added.chunk(3, -1), product.chunk(3, -1)
        gate.copy_(torch.cat([reset + 2 * one, update + 2 * two], -1).sigmoid())
        reset, update = gate.chunk(2, -1)
        new.copy_(torch.tanh(last + reset * three))
        out.copy_(new + update * (state - new))

    def backward(self, factors, slopes, update, back):
        self.calls["gru, slopes"] += 1
        factors.mul_(slopes.unsqueeze(-2))
        back.add_(slopes * update)


class SlowLosses:
    """The kernels of cross entropy, likewise."""

    def __init__(self, calls):
        self.calls = calls

    def losses_of(self, scores, targets, ignored):
        self.calls["losses"] += 1
        found = cross_entropy(scores, targets, ignore_index=ignored, reduction="none")
        return found, scores.logsumexp(1)

    def slopes_of(self, scores, targets, sizes, slopes, ignored):
        self.calls["losses, slopes"] += 1
        rows = torch.arange(len(scores))
        found = torch.exp(scores - sizes[:, None])
        found[rows, targets.clamp(min=0)] -= 1
        return found * (slopes * (targets != ignored))[:, None]


class SlowAttention:
    """The kernels of attention, likewise."""

    def __init__(self, calls):
        self.calls = calls

    def attend(self, parts, causal, exact):
        self.calls["attention"] += 1
        return attend_packed(parts, causal).unflatten(2, parts.shape[3:])

    def parts_of(self, parts, slopes, causal, exact):
        self.calls["attention, slopes"] += 1
        with torch.enable_grad():
            parts = parts.detach().requires_grad_()
            return torch.autograd.grad(attend_packed(parts, causal), parts, slopes.flatten(2))[0]


class SlowBiases:
    """The kernel of dense layers' biases, likewise."""

    def __init__(self, calls):
        self.calls = calls

    def add_bias(self, y, bias):
        self.calls["biases"] += 1
        y += bias[:, None]
