"""Three kernels for decoding steps on a GPU, in Triton: what lies between a layer's four products.

With a hundred rows PyTorch's operations between the products of a layer took longer than the products, which read the weights
(benchmark/throughput/results/README.md). Here the new token's keys and values are turned, stored and attended to by one kernel,
and the activation and the sum with the norm after it are one each. They compute in float32 and round once.

`recorded_steps` uses them where Triton is installed, and `engine_check` compares what comes out with the model's own passes.
Tests run them by Triton's interpreter on a CPU.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Shapes: U rows, H query heads, J key heads, L tokens of a row, P of the shared prefix, D head dimension.


@triton.jit
def _turned(at, cosines, sines, norm, epsilon, inside, D: tl.constexpr, NORMED: tl.constexpr):
    """Heads (n, D) at these addresses, normed if they are to be, and turned by their position."""
    d = tl.arange(0, D)
    other = (d + D // 2) % D
    x = tl.load(at + d[None, :], mask=inside, other=0.0).to(tl.float32)
    y = tl.load(at + other[None, :], mask=inside, other=0.0).to(tl.float32)
    if NORMED:
        scale = tl.rsqrt(tl.sum(x * x, 1) / D + epsilon)[:, None]
        x = x * scale * tl.load(norm + d)[None, :].to(tl.float32)
        y = y * scale * tl.load(norm + other)[None, :].to(tl.float32)
    return x * tl.load(cosines + d)[None, :].to(tl.float32) + y * tl.load(sines + d)[None, :].to(tl.float32)


@triton.jit
def _attended(
    q, keys, values, mask, start, at, most, total, mixed, scale, D: tl.constexpr, BLOCK: tl.constexpr, EXACT: tl.constexpr
):
    """The running softmax of queries (n, D) after a block of keys; the key at place `at` does not count."""
    j = start + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    key = tl.load(keys + j[:, None] * D + d[None, :])
    value = tl.load(values + j[:, None] * D + d[None, :])
    scores = tl.dot(q, tl.trans(key), input_precision="ieee" if EXACT else "tf32") * scale
    scores += tl.where(j == at, float("-inf"), tl.load(mask + j).to(tl.float32))[None, :]
    top = tl.maximum(most, tl.max(scores, 1))
    weights = tl.exp(scores - top[:, None])
    before = tl.exp(most - top)
    total = total * before + tl.sum(weights, 1)
    mixed = mixed * before[:, None]
    mixed += tl.dot(weights.to(value.dtype), value, input_precision="ieee" if EXACT else "tf32")
    return top, total, mixed


@triton.jit
def _attention(
    heads, stride_heads, cosines, sines, query_norm, key_norm, epsilon, place,
    keys, values, stride_row, stride_head, mask, stride_mask,
    prefix_keys, prefix_values, stride_prefix, prefix_mask, output, scale, length, shared,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, PADDED: tl.constexpr,
    D: tl.constexpr, BLOCK: tl.constexpr, NORMED: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """One row and one key head, with the query heads that it serves."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    each: tl.constexpr = HEADS // KEY_HEADS
    d, g, at = tl.arange(0, D), tl.arange(0, PADDED), tl.load(place)
    heads += row * stride_heads
    cosines, sines = cosines + row * D, sines + row * D
    queries = heads + (head * each + g)[:, None] * D
    q = _turned(queries, cosines, sines, query_norm, epsilon, (g < each)[:, None], D, NORMED)
    one = tl.arange(0, 1)[:, None]
    key = _turned(heads + (HEADS + head) * D + one, cosines, sines, key_norm, epsilon, one == 0, D, NORMED)
    value = tl.load(heads + (HEADS + KEY_HEADS + head) * D + d)[None, :]
    keys, values = keys + row * stride_row + head * stride_head, values + row * stride_row + head * stride_head
    key = key.to(value.dtype)
    tl.store(keys + at * D + d[None, :], key)
    tl.store(values + at * D + d[None, :], value)

    q = q.to(value.dtype)
    most = tl.sum(q.to(tl.float32) * key.to(tl.float32), 1) * scale  # begins with the new token
    total = tl.full((PADDED,), 1.0, tl.float32)
    mixed = tl.zeros((PADDED, D), tl.float32) + value.to(tl.float32)
    for start in range(0, shared, BLOCK):
        at_keys, at_values = prefix_keys + head * stride_prefix, prefix_values + head * stride_prefix
        most, total, mixed = _attended(q, at_keys, at_values, prefix_mask, start, -1, most, total, mixed, scale, D, BLOCK, EXACT)
    for start in range(0, length, BLOCK):
        most, total, mixed = _attended(
            q, keys, values, mask + row * stride_mask, start, at, most, total, mixed, scale, D, BLOCK, EXACT
        )
    place_of = output + (row * HEADS + head * each + g)[:, None] * D + d[None, :]
    tl.store(place_of, (mixed / total[:, None]).to(value.dtype), mask=(g < each)[:, None])


@triton.jit
def _gated(products, stride, output, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k = part * BLOCK + tl.arange(0, BLOCK)
    inside = k < WIDTH
    gate = tl.load(products + row * stride + k, mask=inside, other=0.0)
    up = tl.load(products + row * stride + WIDTH + k, mask=inside, other=0.0).to(tl.float32)
    x = gate.to(tl.float32)
    tl.store(output + row * WIDTH + k, (x / (1 + tl.exp(-x)) * up).to(gate.dtype), mask=inside)


@triton.jit
def _added(states, more, stride, weight, epsilon, output, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row, k = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = k < WIDTH
    old = tl.load(states + row * WIDTH + k, mask=inside, other=0.0)
    new = (old.to(tl.float32) + tl.load(more + row * stride + k, mask=inside, other=0.0).to(tl.float32)).to(old.dtype)
    tl.store(states + row * WIDTH + k, new, mask=inside)
    x = new.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / WIDTH + epsilon)
    y = x * scale * tl.load(weight + k, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + row * WIDTH + k, y.to(old.dtype), mask=inside)


def attention(
    heads: Tensor,
    turns: tuple[Tensor, Tensor],
    norms: tuple[Tensor, Tensor] | None,
    epsilon: float,
    place: Tensor,
    own: tuple[Tensor, Tensor],
    mask: Tensor,
    prefix: tuple[Tensor, Tensor] | None,
    prefix_mask: Tensor | None,
) -> Tensor:
    """Turns the new token of each row, stores its keys and values, and attends to them, to the row's and to the shared ones.

    Args:
        heads: (U, at least (H + 2J)·D) queries, keys and values of the new tokens.
        turns: cosines and sines of their positions, (U, 1, 1, D) each, as `DirectDecoder.rotations` gives them.
        norms: weights (D,) of the norms of queries and keys, if there are any.
        epsilon: of these norms.
        place: (1,) where the new keys and values are stored.
        own: keys and values of the rows, (U, J, L, D) each, L a multiple of 64.
        mask: (U, 1, 1, L) additive.
        prefix: keys and values of the shared prefix, (J, P, D) each, P a multiple of 64.
        prefix_mask: (1, 1, 1, P) additive.

    Returns:
        (U, H·D).
    """
    keys, values = own
    rows, key_heads, length, size = keys.shape
    count = heads.shape[1] // size - 2 * key_heads
    shared_keys, shared_values = prefix or own
    query_norm, key_norm = norms or (heads, heads)
    output = heads.new_empty(rows, count * size)
    _attention[rows, key_heads](
        heads, heads.stride(0), *(part.contiguous() for part in turns), query_norm, key_norm, epsilon, place,
        keys, values, keys.stride(0), keys.stride(1), mask, mask.stride(0),
        shared_keys, shared_values, shared_keys.stride(0), mask if prefix_mask is None else prefix_mask, output, size**-0.5,
        length, prefix[0].shape[1] if prefix else 0, HEADS=count, KEY_HEADS=key_heads,
        PADDED=max(16, triton.next_power_of_2(count // key_heads)), D=size, BLOCK=64 if size * heads.itemsize <= 256 else 32,
        NORMED=norms is not None, EXACT=heads.dtype == torch.float32,
    )  # fmt: skip
    return output


def gated(products: Tensor) -> Tensor:
    """silu(gate)·up, (U, width), of (U, 2·width), gate and up side by side."""
    rows, width = products.shape[0], products.shape[1] // 2
    output = products.new_empty(rows, width)
    _gated[rows, triton.cdiv(width, 1024)](products, products.stride(0), output, WIDTH=width, BLOCK=1024)
    return output


def added(states: Tensor, more: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Adds to the states in place, (U, width) both, and returns their root mean square norm."""
    rows, width = states.shape
    output = torch.empty_like(states)
    block = triton.next_power_of_2(width)
    _added[rows,](states, more, more.stride(0), weight, epsilon, output, WIDTH=width, BLOCK=block, num_warps=8)
    return output
