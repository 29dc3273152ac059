"""The same adapter, taught by a player that knows the best moves: maximum likelihood of its moves in the states that it meets.

The thoughts before a move are those of the base, and whole replies are taught: with the moves alone taught at the learning rate
of `quickstart`, the model forgets within 20 updates how its thoughts end. A reply becomes tokens as a whole, since a token may
hold the end of the thoughts and the start of the action.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from accelerate import Accelerator

from benchmark.experiments.experiment import Settings
from benchmark.experiments.training import configured
from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.training.trainer import Trainer, learning_rate

ACTION = "<action>"
"""Where a reply of the format think-action names its action."""


@dataclass(frozen=True)
class Teacher:
    """Replies with the thoughts of a model and the action of a scripted player."""

    model: LanguageModel
    player: ScriptedPolicy

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        own = self.model.complete(prompts, rngs)
        moves = self.player.complete(prompts, rngs)
        return [self._reply(reply, move.text) for reply, move in zip(own, moves, strict=True)]

    def _reply(self, own: Completion, move: str) -> Completion:
        text = own.text.partition(ACTION)[0] + move
        ids = (*self.model.tokenizer(text, add_special_tokens=False)["input_ids"], cast(int, self.model.tokenizer.eos_token_id))
        return replace(own, text=text, token_ids=ids, log_probs=(0.0,) * len(ids))


def taught(settings: Settings) -> Trainer:
    """Trains a preset's adapter for some updates on the moves of a teacher, in fresh episodes for every update.

    Args:
        settings: `preset`, `seed`, `updates`, `teacher` and `episodes`, the number of test episodes; `game`, unless it is the
            preset's.
    """
    fields = {name: settings[name] for name in ("preset", "seed", "updates", "game") if name in settings}
    trainer = Trainer(configured({**fields, "test_episodes": settings["episodes"]}), Accelerator(cpu=True))
    teacher = Teacher(trainer.agent, ScriptedPolicy(SCRIPTED[settings["teacher"]]))
    for update in range(1, settings["updates"] + 1):
        learn(trainer, teacher, update)
    return trainer


def learn(trainer: Trainer, teacher: Teacher, update: int) -> None:
    """One optimiser step on an episode of the teacher from each start of an update."""
    with trainer.model.disable_adapter():
        starts = trainer.starts.of_update(update)
        episodes = [
            episode
            for name, game in trainer.starts.games.items()
            for episode in play_episodes(game, teacher, [(seed, 0) for of, seed in starts if of == name])
        ]
    trainer.optimizer.param_groups[0]["lr"] = learning_rate(trainer.config, update)
    trainer.optimizer.zero_grad()
    trainer.model.train()
    with trainer.engine.learning():
        for packed in trainer.packed([SelectedEpisode(episode, (1.0,) * len(episode.steps)) for episode in episodes]):
            log_probs = trainer.engine.log_probs(packed, 1.0)
            (-(log_probs[packed.tokens] * packed.weights).sum()).backward()
    trainer.model.eval()
    torch.nn.utils.clip_grad_norm_(trainer.parameters.values(), trainer.config.gradient_clip)
    trainer.optimizer.step()
