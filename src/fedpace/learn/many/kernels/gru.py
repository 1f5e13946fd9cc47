"""A step of GRUs of many clients: all that comes after the product of state and weights, in one go.

Tensors are [clients, samples, numbers], and their numbers lie side by side.
"""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["rows", "samples"])
def _forward(
    product,
    added,
    state,
    gate,
    new,
    out,
    rows,
    samples,
    added_client,
    added_sample,
    state_client,
    state_sample,
    out_client,
    out_sample,
    WIDTH: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    w = tl.arange(0, BLOCK_W)[None, :]
    here = (row < rows)[:, None] & (w < WIDTH)
    client, sample = (row // samples).to(tl.int64)[:, None], (row % samples)[:, None]
    row = row.to(tl.int64)[:, None]
    product += row * (3 * WIDTH) + w
    added += client * added_client + sample * added_sample + w
    # r and z have half of their products.
    reset = 2 * tl.load(product, mask=here, other=0.0).to(tl.float32)
    reset = tl.sigmoid(reset + tl.load(added, mask=here, other=0.0).to(tl.float32))
    update = 2 * tl.load(product + WIDTH, mask=here, other=0.0).to(tl.float32)
    update = tl.sigmoid(update + tl.load(added + WIDTH, mask=here, other=0.0).to(tl.float32))
    fresh = reset * tl.load(product + 2 * WIDTH, mask=here, other=0.0).to(tl.float32)
    fresh += tl.load(added + 2 * WIDTH, mask=here, other=0.0).to(tl.float32)
    fresh = 1 - 2 / (1 + tl.exp(2 * fresh))
    before = tl.load(state + client * state_client + sample * state_sample + w, mask=here, other=0.0)
    after = fresh + update * (before.to(tl.float32) - fresh)
    gate += row * (2 * WIDTH) + w
    tl.store(gate, reset.to(gate.dtype.element_ty), mask=here)
    tl.store(gate + WIDTH, update.to(gate.dtype.element_ty), mask=here)
    tl.store(new + row * WIDTH + w, fresh.to(new.dtype.element_ty), mask=here)
    out += client * out_client + sample * out_sample + w
    tl.store(out, after.to(out.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["rows", "samples"])
def _backward(
    factors,
    here_slopes,
    update,
    back,
    rows,
    samples,
    factors_client,
    factors_sample,
    update_client,
    update_sample,
    WIDTH: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    w = tl.arange(0, BLOCK_W)[None, :]
    here = (row < rows)[:, None] & (w < WIDTH)
    client, sample = (row // samples).to(tl.int64)[:, None], (row % samples)[:, None]
    row = row.to(tl.int64)[:, None]
    slope = tl.load(here_slopes + row * WIDTH + w, mask=here, other=0.0).to(tl.float32)
    factors += client * factors_client + sample * factors_sample + w
    for at in tl.static_range(3):
        factor = tl.load(factors + at * WIDTH, mask=here, other=0.0).to(tl.float32)
        tl.store(factors + at * WIDTH, (factor * slope).to(factors.dtype.element_ty), mask=here)
    kept = tl.load(update + client * update_client + sample * update_sample + w, mask=here, other=0.0)
    back += row * WIDTH + w
    found = tl.load(back, mask=here, other=0.0).to(tl.float32) + slope * kept.to(tl.float32)
    tl.store(back, found.to(back.dtype.element_ty), mask=here)


def forward(
    product: Tensor, added: Tensor, state: Tensor, gate: Tensor, new: Tensor, out: Tensor
) -> None:
    """Write r and z into `gate`, n into `new` and the next state into `out`: see `operators.gru`."""
    clients, samples, width = new.shape
    rows, how = clients * samples, _blocks(width)
    _forward[(triton.cdiv(rows, how["BLOCK_R"]),)](
        product,
        added,
        state,
        gate,
        new,
        out,
        rows,
        samples,
        *added.stride()[:2],
        *state.stride()[:2],
        *out.stride()[:2],
        WIDTH=width,
        **how,
    )


def backward(factors: Tensor, slopes: Tensor, update: Tensor, back: Tensor) -> None:
    """Multiply `factors` [clients, samples, 3, width] by slopes, and add slopes * update to `back`."""
    clients, samples, width = slopes.shape
    rows, how = clients * samples, _blocks(width)
    _backward[(triton.cdiv(rows, how["BLOCK_R"]),)](
        factors,
        slopes,
        update,
        back,
        rows,
        samples,
        *factors.stride()[:2],
        *update.stride()[:2],
        WIDTH=width,
        **how,
    )


def _blocks(width: int) -> dict[str, int]:
    wide = triton.next_power_of_2(width)
    high = max(512 // wide, 1)
    return {"BLOCK_R": high, "BLOCK_W": wide, "num_warps": min(max(high * wide // 128, 1), 8)}
