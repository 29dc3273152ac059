"""A tiny policy on tiny lakes, in float64, and all episodes of such a lake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from peft import PeftModel
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from benchmark.experiments.exact_gradient.exact import Floats, observations_of
from benchmark.experiments.exact_gradient.policy import FixedReplies
from benchmark.experiments.exact_gradient.simulation import Simulator
from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS
from msgrpo_hub.episode import Completion
from msgrpo_hub.games.frozen_lake import FrozenLake, LakeState
from msgrpo_hub.models.language_model import LanguageModel, pocket_path
from tests.tiny import adapted

PENALTY = 0.5


def lake(size: int = 2, *, horizon: int = 3, slippery: bool = True) -> FrozenLake:
    return FrozenLake(id="FrozenLake-Tiny-v1", size=size, horizon=horizon, slippery=slippery)


def in_float64() -> PeftModel:
    """A GPT-2 of one layer with an adapter: other families compute their norms in float32."""
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=1005, n_embd=16, n_layer=1, n_head=2, n_positions=512, initializer_range=0.2)
    return adapted(GPT2LMHeadModel(config)).double()


def tiny_policy(game: FrozenLake, start: LakeState, model: PeftModel | None = None) -> FixedReplies:
    """A tiny model restricted to the replies; in float64 unless another is given."""
    tokenizer = AutoTokenizer.from_pretrained(pocket_path())
    prompts = [build_prompt(game, state, PROMPT_FORMATS["action-only"]) for state in observations_of(game, [start]).values()]
    return FixedReplies(LanguageModel(model or in_float64(), tokenizer), prompts)


def simulator_of(game: FrozenLake, start: LakeState, probabilities: Floats | None = None) -> Simulator:
    """A policy that is a table, without a model; random unless given."""
    rows = {observation: row for row, observation in enumerate(observations_of(game, [start]))}
    given = np.random.default_rng(0).dirichlet(np.ones(5), len(rows)) if probabilities is None else probabilities
    replies = [Completion(text=text) for text in (*game.actions, "")]
    return Simulator(game=game, row_of=rows, probabilities=given, replies=replies, prompt_ids=[(row,) for row in rows.values()])


class Path(NamedTuple):
    """One possible episode: the chance of the game's part in it, its composite return, and (state, option) of each step."""

    chance: float
    value: float
    steps: tuple[tuple[Any, int], ...]


BEGINNING = Path(1.0, 0.0, ())


def paths(game: FrozenLake, state: LakeState, so_far: Path = BEGINNING) -> Iterator[Path]:
    """All episodes from a state."""
    for option, action in enumerate((*game.actions, None)):
        for chance, after in game.outcomes(state, action):
            reward = after.reward - PENALTY * (action is None)
            path = Path(so_far.chance * chance, so_far.value + reward, (*so_far.steps, (state, option)))
            if after.terminated or after.truncated:
                yield path
            else:
                yield from paths(game, after.state, path)
