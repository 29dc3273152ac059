"""A small model computes on one thread, whatever torch is set to; a large one as torch is set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.models.devices import SMALL_MODEL, default_threads, on_threads
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.scoring import ScorePolicy
from tests.models.loading import load, rngs


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    with on_threads(2):
        yield


def threads_of(model: LanguageModel, prompts: list[Prompt]) -> set[int]:
    """The threads that its forward passes had, of a sampled and of a scored reply."""
    model.complete(prompts, rngs(len(prompts)))  # chooses the engine
    seen: set[int] = set()
    hook = model.model.get_input_embeddings().register_forward_pre_hook(lambda *_: seen.add(torch.get_num_threads()))
    ScorePolicy(model).complete(prompts, rngs(len(prompts)))
    model.complete(prompts, rngs(len(prompts)))
    hook.remove()
    assert torch.get_num_threads() == 2
    return seen


def test_a_small_model_computes_on_one_thread(qwen2_folder: Path, prompts: list[Prompt]) -> None:
    small = load(qwen2_folder, max_new_tokens=8)
    assert small.model.num_parameters() < SMALL_MODEL
    assert threads_of(small, prompts) == {1}
    assert threads_of(replace(small, threads=None), prompts) == {2}  # as that of a training, which sets those of torch
    assert default_threads(SMALL_MODEL) is None


def test_what_was_set_is_set_again_afterwards() -> None:
    with on_threads(None):
        torch.set_num_threads(1)
    assert torch.get_num_threads() == 2
