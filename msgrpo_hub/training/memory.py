"""The memory that training needs, computed from the shapes of the layers and of the largest batch before it is taken."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import psutil
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from msgrpo_hub.agent.policy import format_of
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game
from msgrpo_hub.models.attention import base_of
from msgrpo_hub.models.devices import free_memory
from msgrpo_hub.models.engine import CAPACITY
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.log_probs import CHUNK_BYTES
from msgrpo_hub.models.sampling import TokenIds
from msgrpo_hub.models.token_tree import common_prefix
from msgrpo_hub.models.weights import copied_bytes
from msgrpo_hub.players.sample_play import longest_prompts
from msgrpo_hub.training.batch import TREE_SIZE
from msgrpo_hub.training.config import TrainConfig

PROGRAM = 0.45e9
"""Bytes of Python, torch and the other libraries, where they share their memory with the model."""
TOLD = 1e9
"""Bytes from which a run says what it needs; less is found on any machine."""
FLOAT32 = 4
"""Bytes of a number."""

log = logging.getLogger(__name__)


def memory_needed(config: TrainConfig, agent: LanguageModel, prompts: Sequence[TokenIds], horizon: int) -> dict[str, float]:
    """The bytes of each part of an update. Sampling and training take turns, so only the larger one counts.

    Args:
        config: of the run.
        agent: the model with its adapter.
        prompts: long prompts of the games.
        horizon: most turns of an episode.
    """
    model, base = agent.model, base_of(agent.model)
    text, device = base.config.get_text_config(), model.device.type
    each, layers, heads = model.dtype.itemsize, text.num_hidden_layers, getattr(text, "num_attention_heads", 0)
    head = text.to_dict().get("head_dim") or text.hidden_size // max(heads, 1)
    prefix = common_prefix(min(prompts), max(prompts))
    tail = max(map(len, prompts)) - prefix + config.max_new_tokens  # of a sequence, behind what all share
    linear = [
        m
        for m in base.modules()
        if isinstance(m, nn.Linear) and not m.weight.requires_grad and m is not base.get_output_embeddings()
    ]
    parameters = list(model.parameters())

    # 1) sampling: the weights with the adapter merged, and laid out for few rows; keys and values; logits
    episodes = max(config.groups * config.group_size, config.test_episodes, config.eval_episodes * bool(config.eval_every))
    rows = min(episodes, config.max_rows)
    adapted = [m for m in model.modules() if isinstance(m, BaseTunerLayer)]
    weights = [w for m in adapted if isinstance(w := getattr(m.get_base_layer(), "weight", None), Tensor)]  # experts have several
    merged = sum(w.nbytes for w in weights) if each == FLOAT32 else 0
    kept = 2 * layers * (text.to_dict().get("num_key_value_heads") or heads) * head * each
    of_row = 1.5 * tail * kept + 2 * text.vocab_size * each + 4 * tail * max(m.out_features for m in linear) * each
    cached = min(CAPACITY, episodes * horizon * config.max_new_tokens * text.vocab_size * each)
    sampling = merged + copied_bytes(model) + rows * of_row + cached

    # 2) training: what the layers keep for the backward pass, keys and values of the prefix for each tree, a chunk of logits
    learned = config.groups * config.selected_per_group * horizon
    tokens = max(tail, min(config.token_budget - prefix, learned * tail))
    tree = min(tokens, max(TREE_SIZE, 4 * tail))  # as `largest_tree`
    inputs = each if device == "cuda" else FLOAT32
    inside = (prefix + tokens) * sum(inputs * m.in_features + each * m.out_features for m in linear)
    inside += layers * tokens / tree * (prefix + tree) * (2 * heads * head + tree) * each
    if config.gradient_checkpointing:
        inside = inside / layers + layers * (prefix + tokens) * text.hidden_size * each
    logits = 4 * min(CHUNK_BYTES, tokens * config.max_new_tokens / tail * text.vocab_size * FLOAT32)
    return {
        "program": PROGRAM if device == "cpu" else 0.0,
        "weights": sum(p.nbytes for p in parameters if not p.requires_grad),
        "adapter and optimiser": 4 * sum(p.nbytes for p in parameters if p.requires_grad),
        f"sampling {rows} replies": sampling,
        f"training on {prefix + tokens} tokens": inside + logits,
    }


def check_memory(config: TrainConfig, agent: LanguageModel, games: Collection[Game]) -> None:
    """Logs what an update needs and what is free.

    Raises:
        UserError: the CPU's memory is too small. (A GPU may try: it raises an error when its memory is full.)
    """
    prompts, horizon = agent.encode(longest_prompts(games, format_of(agent))), max(game.horizon for game in games)
    device = agent.model.device.type
    free = free_memory(device) + psutil.Process().memory_info().rss * (device == "cpu")  # what is loaded already is needed too
    needed = _largest(memory_needed(config, agent, prompts, horizon))
    total = sum(needed.values())
    parts = ", ".join(f"{size / 1e9:.1f} {name}" for name, size in needed.items())
    line = f"training needs about {total / 1e9:.1f} GB of memory ({parts}), and {free / 1e9:.1f} GB are free"
    if device != "cpu" or total <= free:
        if total >= TOLD:
            log.warning(line)
        return
    for part in (2, 4, 8, 16):
        smaller = replace(config, token_budget=max(1, config.token_budget // part), max_rows=max(1, config.max_rows // part))
        if sum(_largest(memory_needed(smaller, agent, prompts, horizon)).values()) <= free:
            raise UserError(f"{line}: lower --token-budget to {smaller.token_budget} and --max-rows to {smaller.max_rows}")
    raise UserError(f"{line}: expected a smaller model, --dtype bfloat16, --gradient-checkpointing or another machine")


def _largest(needed: Mapping[str, float]) -> dict[str, float]:
    """The parts that are in memory at the same time: of the last two, sampling and training, only the larger."""
    *always, sampling, training = needed.items()
    return dict([*always, max(sampling, training, key=lambda part: part[1])])
