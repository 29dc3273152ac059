"""Triton's kernels of a decoding step, on a GPU or by Triton's interpreter on a CPU, against PyTorch's operations.

`make test-kernels` installs Triton beside the environment, whose torch for CPUs comes without it, and interprets them.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from msgrpo_hub.models import fused_step, recorded_steps
from msgrpo_hub.models.attention import attend
from msgrpo_hub.models.direct_decoder import DirectDecoder
from tests.models.engines import assert_same, some_prompts
from tests.models.test_recorded_steps import replies
from tests.tiny import adapted, tiny_model

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
runs = ON_GPU or os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.skipif(not runs, reason="needs a CUDA GPU or Triton's interpreter: make test-kernels")


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape).to(DEVICE, dtype)


@pytest.mark.parametrize(("heads", "key_heads", "size"), [(4, 2, 16), (14, 2, 64), (3, 3, 32)])
@pytest.mark.parametrize(("shared", "normed"), [(64, False), (0, True), (128, True)])
def test_a_new_token_is_turned_stored_and_attended_to(heads: int, key_heads: int, size: int, shared: int, normed: bool) -> None:
    gpu_kernels = pytest.importorskip("msgrpo_hub.models.gpu_kernels")
    torch.manual_seed(0)
    rows, length, at = 3, 128, 70
    products = random(rows, (heads + 2 * key_heads) * size + 24)[:, :-24]  # an adapter's inner products follow
    angles = random(rows, 1, 1, size // 2)
    cosines = torch.cat([angles.cos()] * 2, -1)
    sines = torch.cat([-angles.sin(), angles.sin()], -1)
    norms = (random(size), random(size)) if normed else None
    buffers = random(2, rows + 2, key_heads, length + 64, size)
    keys, values = (buffer[:rows, :, :length] for buffer in buffers)
    prefix = (random(key_heads, shared, size), random(key_heads, shared, size)) if shared else None
    prefix_mask = random(1, 1, 1, shared) if shared else None
    mask = torch.full((rows, 1, 1, length), torch.finfo(torch.float32).min, device=DEVICE)
    mask[..., 5 : at + 1] = 0.0

    turning, new_values = products.unflatten(1, (-1, size)).split([heads + key_heads, key_heads], 1)
    queries, new_keys = turning.split([heads, key_heads], 1)
    if norms:
        queries, new_keys = (functional.rms_norm(x, (size,), w, 1e-6) for x, w in zip((queries, new_keys), norms, strict=True))
    queries, new_keys = (x * cosines[:, 0] + x.roll(size // 2, -1) * sines[:, 0] for x in (queries, new_keys))
    expected_keys, expected_values = keys.clone(), values.clone()
    expected_keys[:, :, at], expected_values[:, :, at] = new_keys, new_values
    expected = attend(queries[:, :, None], expected_keys, expected_values, mask, prefix, None, None, prefix_mask)

    place = torch.tensor([at], device=DEVICE)
    found = gpu_kernels.attention(products, (cosines, sines), norms, 1e-6, place, (keys, values), mask, prefix, prefix_mask)
    assert torch.allclose(found, expected.reshape(rows, -1), atol=1e-5)
    assert torch.allclose(keys, expected_keys, atol=1e-5)
    assert torch.equal(values, expected_values)


@pytest.mark.parametrize("width", [48, 1500])
def test_gate_and_norm(width: int) -> None:
    gpu_kernels = pytest.importorskip("msgrpo_hub.models.gpu_kernels")
    products = random(3, 2 * width + 8)[:, :-8]
    gate, up = products.chunk(2, -1)
    assert torch.allclose(gpu_kernels.gated(products), functional.silu(gate) * up, atol=1e-6)

    states, more, weight = random(3, width), random(3, width + 8)[:, :-8], random(width)
    total = states + more
    normed = gpu_kernels.added(states, more, weight, 1e-6)
    assert torch.equal(states, total)
    assert torch.allclose(normed, functional.rms_norm(total, (width,), weight, 1e-6), atol=1e-5)


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama", "LoRA"])
def test_replies_are_those_of_the_modules(name: str) -> None:
    options = {"vocab_size": 300, "hidden_size": 64, **({"head_dim": 16} if name == "qwen3" else {})}
    model = tiny_model("qwen2" if name == "LoRA" else name, **options)
    model = (adapted(model) if name == "LoRA" else model).to(DEVICE)
    fused = patch.object(fused_step, "_on_gpu", lambda _tensor: True)
    without_graphs = nullcontext() if ON_GPU else patch.object(recorded_steps, "_as_graphs", lambda: lambda step, _inputs: step)
    with fused, without_graphs, patch.object(DirectDecoder, "states", autospec=True, side_effect=DirectDecoder.states) as states:
        ours = replies(model, "recorded", some_prompts())
        prefills = states.call_count
    assert prefills == 2, "the shared prefix and the prompts; no step"
    assert_same(ours, replies(model, "modules", some_prompts()))
