"""What an update takes, before it is run: its turns and tokens from scripted play, its bytes and operations from a shape.

The shape is that of `models/costs.py`, which `msgrpo eval --estimate` uses too. Replies count as full, and no state comes twice,
so that a real update is smaller: merged rows and shared prefixes beyond the rules are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgrpo_hub.agent.prompt_formats import find_format
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.models.costs import FLOAT32, PROGRAM_BYTES, Shape
from msgrpo_hub.models.token_counts import CHARACTERS_PER_TOKEN
from msgrpo_hub.players.sample_play import scripted_prompts
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.curriculum import parse_games

_PLAYER, _EPISODES = "random-safe", 8


@dataclass(frozen=True, kw_only=True)
class UpdateSize:
    """The turns and tokens of an update."""

    episodes: int
    learned: int
    """Episodes that the update learns from."""
    turns: float
    """Of an episode."""
    rules: float
    """Tokens that all prompts share."""
    state: float
    """Tokens of a prompt after the rules."""
    reply: int

    @property
    def steps(self) -> float:
        """Sequential forward passes while acting: one per token of a reply, for all episodes together."""
        return self.turns * self.reply

    @property
    def context(self) -> float:
        """Tokens that a token of a reply attends to, in the mean."""
        return self.rules + self.state + self.reply / 2


def update_size(config: TrainConfig) -> UpdateSize:
    """The size of a run's updates, from scripted play of its first game; tokens by characters, as of a server's player."""
    name = next(iter(parse_games(config.game)))
    seeds = [episode_seed(name, "train", index) for index in range(_EPISODES)]
    prompts = scripted_prompts(make_game(name), find_format(config.prompt_format), _PLAYER, seeds)
    characters = [sum(len(text) for _, text in prompt.contents) - len(prompt.system) for prompt in prompts]
    return UpdateSize(
        episodes=config.groups * config.group_size,
        learned=config.groups * config.selected_per_group,
        turns=len(prompts) / len(seeds),
        rules=len(prompts[0].system) / CHARACTERS_PER_TOKEN,
        state=sum(characters) / len(characters) / CHARACTERS_PER_TOKEN,
        reply=config.max_new_tokens,
    )


def memory(config: TrainConfig, shape: Shape, size: UpdateSize) -> dict[str, float]:
    """What is in the memory of a card at the same time → bytes. Acting and training take turns, so the larger one counts."""
    each = FLOAT32 if config.dtype == "float32" else 2
    rows = min(size.episodes, config.max_rows)
    own = size.rules + rows * (size.state + size.reply)
    predicting = config.token_budget * size.reply / (size.state + size.reply)
    parts = {
        "acting": shape.cache_bytes(own, each),
        "training": shape.training_bytes(config.token_budget, predicting, each, checkpointed=config.gradient_checkpointing),
    }
    fixed = {
        "program": PROGRAM_BYTES,
        "weights": float(shape.weights * each),
        "adapter": float(shape.adapter_bytes(config.lora_rank)),
    }
    return fixed | {max(parts, key=lambda name: parts[name]): max(parts.values())}


@dataclass(frozen=True, kw_only=True)
class Work:
    """Operations and bytes of an update, of which the slower one counts."""

    acting_operations: float
    acting_bytes: float
    training_operations: float


def work(config: TrainConfig, shape: Shape, size: UpdateSize) -> Work:
    """The work of an update. A training token passes three times, forward, backward and through the reference."""
    each = FLOAT32 if config.dtype == "float32" else 2
    replies = size.episodes * size.turns
    read = shape.forward(size.rules + replies * size.state, size.context, replies)
    written = shape.forward(replies * size.reply, size.context, replies * size.reply)
    cached = shape.cache_bytes(size.rules + size.episodes * (size.state + size.reply / 2), each)
    learned = size.learned * size.turns
    passes = 2 + bool(config.beta) + config.gradient_checkpointing
    return Work(
        acting_operations=read + written,
        acting_bytes=size.steps * (shape.weights * each + cached),
        training_operations=passes
        * shape.forward(size.rules + learned * (size.state + size.reply), size.context, learned * size.reply),
    )
