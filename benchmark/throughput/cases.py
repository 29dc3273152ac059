"""The measured cases: one case is one kind of update, the same work for every side."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

from benchmark.throughput.machine import clock
from benchmark.throughput.shapes import model_folder
from msgrpo_hub.agent.policy import Policy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion, Group
from msgrpo_hub.games import Game, make_game
from msgrpo_hub.games.registry import GAMES
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.training.acting import EngineActor
from msgrpo_hub.training.batch import Pack
from msgrpo_hub.training.config import TrainConfig, preset
from msgrpo_hub.training.metrics import Metrics
from msgrpo_hub.training.trainer import Start, Trainer

PRESETS = {
    "FrozenLake-NotSlippery-v1": "quickstart",
    "Snake-Solo-v1": "quickstart-snake",
    "Snake-Standard-v1": "paper-snake",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kind of update. All sides play the same starts with the same settings."""

    game: str
    """Game; its preset sets everything that the case does not."""
    model: str = "pocket"
    """The built-in base, or a shape of `shapes.py` with random weights."""
    dtype: str = ""
    """Precision of the base's weights; by default float32."""
    reply: int = 0
    """Number of tokens of every forced reply, with random actions; 0 for natural replies."""
    groups: int = 8
    group_size: int = 32
    drawn: int = 8
    policy_updates: int = 0
    """The policy is the base after this many updates of the preset."""
    horizon: int = 0
    """Horizon of the game; 0 keeps the default."""
    size: int = 0
    """Edge of the board; 0 keeps the default."""

    @property
    def name(self) -> str:
        """The name of the case in tables."""
        settings = {key: value for key, value in asdict(self).items() if value and key != "game"}
        return " ".join([self.game, *(f"{key}={value}" for key, value in settings.items())])

    def base(self, models: Path) -> str:
        """The model to load; one of random weights is made if `models` has none."""
        return model_folder(self.model, models, getattr(torch, self.dtype or "float32"))

    def registered_game(self) -> str:
        """The id of the game. A game of another size or horizon is registered for this process."""
        game: Any = make_game(self.game)
        changes = {key: value for key in ("horizon", "size") if (value := getattr(self, key))}
        if changes:
            game = replace(game, id=f"{self.game}-" + "-".join(f"{key}{value}" for key, value in changes.items()), **changes)
            GAMES[game.id] = game
        return str(game.id)

    def config(self, models: Path, **changes: Any) -> TrainConfig:
        """The preset of the game with the sizes of this case, and a learning rate so small that the policy stays the same."""
        return replace(
            preset(PRESETS[self.game]),
            **{
                "game": self.registered_game(),
                "model": changes.get("model") or self.base(models),
                **({"dtype": self.dtype} if self.dtype else {}),
                **{"groups": self.groups, "group_size": self.group_size, "selected_per_group": self.drawn},
                **({"max_new_tokens": self.reply} if self.reply else {}),
                **{"learning_rate": 1e-12, "warmup": 0, "eval_every": 0, "test_episodes": 0},
                **changes,
            },
        )


@dataclass
class ForcedReply:
    """A policy whose replies end only at the limit and have random content: one of four actions, or no action in one of
    five cases.

    Random weights never write an action: a player who never moves would show the same prompt at every step, and a group
    whose returns are all equal would leave nothing to train.
    """

    policy: Policy
    actions: Sequence[str] = field(default=("Up", "Right", "Down", "Left"))

    def caching(self) -> AbstractContextManager[None]:
        """The cache of the wrapped policy, while episodes are played."""
        caching: AbstractContextManager[None] = getattr(self.policy, "caching", nullcontext)()
        return caching

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        replies = self.policy.complete(prompts, rngs)
        texts = [*(f"<action>{action}</action>" for action in self.actions), ""]
        contents = [texts[int(rng.spawn(1)[0].integers(5))] for rng in rngs]  # spawned, so that all sides play alike
        return [replace(reply, text=text) for reply, text in zip(replies, contents, strict=True)]


class MeasuredTrainer(Trainer):
    """The library's trainer. It records the episodes played and trained on, to count the work."""

    played: list[Group]
    packs: Sequence[Pack] = ()
    selected: Sequence[SelectedEpisode] = ()
    """What a side without packs learned from."""
    seconds_acting = 0.0
    """Of the last update."""

    @property
    def game(self) -> Game:
        """The one game of the case."""
        [game] = self.starts.games.values()
        return game

    def ready(self) -> AbstractContextManager[None]:
        """With what else acts."""
        return nullcontext()

    def act(self, starts: Sequence[Start]) -> list[Group]:
        began = clock()
        self.played, self.packs, self.selected = self.play(starts), (), ()
        self.seconds_acting = clock() - began
        return self.played

    def play(self, starts: Sequence[Start]) -> list[Group]:
        """Acts as this side does."""
        return super().act(starts)

    def gradient(self, packs: Sequence[Pack], taught: bool = False) -> Metrics:
        self.packs = packs
        return super().gradient(packs, taught)


def make_trainer(case: Case, models: Path, kind: type[MeasuredTrainer] = MeasuredTrainer, **changes: Any) -> MeasuredTrainer:
    """A trainer for a case, with the adapter of its policy."""
    changes = {"device": "cuda" if torch.cuda.is_available() else "cpu", **changes}
    config = case.config(models, **changes)
    trainer = kind(config, Accelerator(cpu=not torch.cuda.is_available()))
    if case.policy_updates:
        for name, tensor in load_file(adapter_file(case, models)).items():
            trainer.parameters[name].data.copy_(tensor)
    if case.reply:
        trainer.agent.engine.end_ids = frozenset()
        trainer.model.generation_config.eos_token_id = None
        force(trainer)
    return trainer


def force(trainer: MeasuredTrainer) -> None:
    """Gives the trainer, and what acts for it, an agent with forced replies."""
    assert isinstance(trainer.agent, LanguageModel)
    forced: Any = ForcedReply(trainer.agent, tuple(trainer.game.actions))
    trainer.agent, trainer.actor = forced, EngineActor(forced)


def adapter_file(case: Case, models: Path) -> Path:
    """The file of a trained policy's adapter."""
    return models / f"{case.game}-{case.policy_updates}.safetensors"
