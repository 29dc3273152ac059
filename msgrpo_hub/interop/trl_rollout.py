"""TRL's `rollout_func`: groups of our episodes for `GRPOTrainer`, for any model that we play, also without a template with tools.

A model answers each turn from its own prompt, without the turns before, and TRL learns from one row per episode. So a row is one
step of the episode, drawn uniformly: its prompt, its reply, and the return of the whole episode, which is the credit that the
paper gives to every step. TRL makes the advantages, and its gradient is an unbiased sample of that of all steps, each weighted by
1 / (steps of its episode). `msgrpo train` learns from all steps of the selected episodes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from datasets import Dataset

from msgrpo_hub.agent.prompt_formats import THINK_ACTION, PromptFormat
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.fields import Count, Seed, checked
from msgrpo_hub.games import Split, episode_seed, make_game
from msgrpo_hub.interop.trl_environment import draw_member
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.msgrpo import composite_return
from msgrpo_hub.rollout import play_episodes

_MARK = "#"


@checked
def rollout_dataset(game: str, episodes: Count, *, split: Split = "train", run: Seed = 0) -> Dataset:
    """The starts of a split as rows for `trl_rollout`, which gets nothing of a row but its prompt: `GAME#SEED`.

    Args:
        game: the id of a registered game.
        episodes: the number of rows.
        split: where the boards of the starts belong.
        run: gives other starts to another run.

    Returns:
        A dataset with `prompt`, `seed` and `member`; the member is None, since each episode of a group draws its own.
    """
    seeds = [episode_seed(game, split, index, run) for index in range(episodes)]
    return Dataset.from_list([{"prompt": f"{game}{_MARK}{seed}", "seed": seed, "member": None} for seed in seeds])


def episode_return(*, episode_return: Sequence[float], **_: Any) -> list[float]:
    """The reward function of `trl_rollout`: the return of each row's episode, less its format penalties."""
    return list(episode_return)


class GameRollout:
    """What `GRPOTrainer(rollout_func=...)` takes."""

    def __init__(
        self,
        format_penalty: float,
        prompt_format: PromptFormat,
        on_episodes: Callable[[Sequence[Episode]], None] | None,
    ) -> None:
        self.format_penalty, self.prompt_format, self.on_episodes = format_penalty, prompt_format, on_episodes
        self._agent: LanguageModel | None = None

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """One row per prompt, in order: `prompt_ids`, `completion_ids`, `logprobs`, and `episode_return` for the reward."""
        model = trainer.model
        was_training = model.training
        model.eval()
        with _in_own_precision(model):
            episodes = self.play(prompts, self._agent_of(trainer))
        model.train(was_training)
        if self.on_episodes:
            self.on_episodes(episodes)
        rows = [self.row(episode) for episode in episodes]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def play(self, prompts: Sequence[Any], agent: LanguageModel) -> list[Episode]:
        """One episode per prompt, in order; episodes of one game are played together."""
        starts = [_start(prompt) for prompt in prompts]
        episodes: dict[int, Episode] = {}
        for game in dict.fromkeys(game for game, _ in starts):
            places = [place for place, start in enumerate(starts) if start[0] == game]
            keys = [(starts[place][1], draw_member()) for place in places]
            played = play_episodes(make_game(game), agent, keys, prompt_format=self.prompt_format)
            episodes |= dict(zip(places, played, strict=True))
        return [episodes[place] for place in range(len(starts))]

    def row(self, episode: Episode) -> dict[str, Any]:
        """One step of an episode, drawn uniformly, and the episode's return."""
        completion = random.choice(episode.steps).completion
        return {
            "prompt_ids": list(completion.prompt_ids),
            "completion_ids": list(completion.token_ids),
            "logprobs": list(completion.log_probs),
            "episode_return": composite_return(episode, self.format_penalty),
        }

    def _agent_of(self, trainer: Any) -> LanguageModel:
        """The trainer's model as a player, with its temperature and its token limit. Later calls notice changed weights."""
        if self._agent is None or self._agent.model is not trainer.model:
            self._agent = LanguageModel(
                trainer.model,
                trainer.processing_class,
                temperature=trainer.args.temperature,
                max_new_tokens=trainer.args.max_completion_length,
                top_k=trainer.args.top_k or 0,
                top_p=trainer.args.top_p,
            )
        return self._agent


def trl_rollout(
    *,
    format_penalty: float = 1.0,
    prompt_format: PromptFormat = THINK_ACTION,
    on_episodes: Callable[[Sequence[Episode]], None] | None = None,
) -> GameRollout:
    """What `GRPOTrainer(rollout_func=...)` takes, together with `reward_funcs=episode_return` and rows of `rollout_dataset`.

    The trainer's own model acts, in the type of its weights, with the trainer's temperature, token limit, `top_k` and `top_p`.
    It must be whole in one process: not sharded, and not behind vLLM.

    Args:
        format_penalty: taken from the return for each unparsed reply, as `TrainConfig.format_penalty`.
        prompt_format: how the model is asked and its replies are read.
        on_episodes: called with the episodes of each batch, in the order of its rows.
    """
    return GameRollout(format_penalty, prompt_format, on_episodes)


@contextmanager
def _in_own_precision(model: Any) -> Iterator[None]:
    """Inside, the model computes in the type of its weights: accelerate's mixed precision, TRL's default, is taken off."""
    wrapped = model.__dict__.get("forward")
    with torch.autocast(model.device.type, enabled=False):
        if original := model.__dict__.get("_original_forward"):
            model.forward = original
        try:
            yield
        finally:
            if original:
                model.forward = wrapped


def _start(prompt: Any) -> tuple[str, int]:
    """Game and seed of a prompt. Raises `UserError` for any prompt that `rollout_dataset` did not write."""
    game, mark, seed = prompt.rpartition(_MARK) if isinstance(prompt, str) else ("", "", "")
    if not mark or not seed.isdecimal():
        raise UserError(f"the prompt {shown(prompt)}: expected GAME{_MARK}SEED; make the dataset with rollout_dataset")
    return game, int(seed)
