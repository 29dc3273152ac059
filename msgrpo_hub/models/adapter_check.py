"""Adapter check: a loaded adapter that does not change the log-probabilities was not applied."""

from __future__ import annotations

from typing import cast

import torch
from peft import PeftModel

from msgrpo_hub.agent.policy import format_of
from msgrpo_hub.agent.prompt import Prompt, build_prompt
from msgrpo_hub.games import episode_seed, make_game, stream
from msgrpo_hub.models.language_model import LanguageModel

PROBE = "FrozenLake-NotSlippery-v1"


def adapter_effect(agent: LanguageModel) -> float:
    """The largest difference, in nats, that the adapter makes to the next-token log-probabilities after a test prompt."""
    [ids] = agent.encode([probe_prompt(agent)])
    adapted = _log_probs(agent, ids)
    with cast(PeftModel, agent.model).disable_adapter():
        plain = _log_probs(agent, ids)
    return float((adapted - plain).abs().max())


def probe_prompt(agent: LanguageModel) -> Prompt:
    """A prompt in the model's own format."""
    game = make_game(PROBE)
    state = game.initial_state(stream(episode_seed(PROBE, "validation", 0), "initial_state"))
    return build_prompt(game, state, format_of(agent))


@torch.no_grad()
def _log_probs(agent: LanguageModel, ids: tuple[int, ...]) -> torch.Tensor:
    logits = agent.model(torch.tensor([ids], device=agent.model.device)).logits[0, -1]
    return torch.log_softmax(logits.float(), dim=-1)
