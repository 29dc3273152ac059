"""TRL's two sockets, tested with TRL 1.16: `trl_rollout` for any model that we play, `trl_environment` for tool calls.

`trl_rollout` gives `GRPOTrainer(rollout_func=...)` one row per episode: one of its steps, sampled uniformly, with its prompt, its
reply and the return of the whole episode. TRL computes the advantages. Its gradient is an unbiased sample of the gradient of all
steps, each weighted by 1 / (steps of its episode). `trl_environment` gives `GRPOTrainer(environment_factory=...)` an environment
with one tool, `play`, for the whole reply. The model keeps its conversation. TRL needs a chat template that it knows, with tools.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from datasets import Dataset

from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.agent.prompt_formats import THINK_ACTION, PromptFormat
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.fields import Count, Seed, checked
from msgrpo_hub.games import Game, Split, episode_seed, make_game
from msgrpo_hub.games.seeds import SHARES
from msgrpo_hub.interop.episodes import seed_in, start_play
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.msgrpo import composite_return
from msgrpo_hub.rollout import Play, past_turns, play_episodes

_MARK = "#"
HOW = "Give every answer as the argument of the tool `play`. It returns the next observation, until the game is over."
OVER = "The game is over."


@checked
def rollout_dataset(game: str, episodes: Count, *, split: Split = "train", run: Seed = 0) -> Dataset:
    """The starts of a split as rows for `trl_rollout`, which gets only their prompt, `GAME#SEED#SPLIT`; a `run` has its own."""
    seeds = [episode_seed(game, split, index, run) for index in range(episodes)]
    return Dataset.from_list([{"prompt": f"{game}{_MARK}{seed}{_MARK}{split}"} for seed in seeds])


@checked
def environment_dataset(
    game: str, episodes: Count, *, split: Split = "train", run: Seed = 0, prompt_format: PromptFormat = THINK_ACTION
) -> Dataset:
    """The same starts as rows for `trl_environment`, which TRL repeats for a group; its members share only the seed."""
    rules = prompt_format.render(make_game(game), "", ())[0]["content"]
    prompt = [{"role": "system", "content": f"{rules}\n{HOW}"}, {"role": "user", "content": ""}]
    seeds = [episode_seed(game, split, index, run) for index in range(episodes)]
    return Dataset.from_list([{"prompt": prompt, "seed": seed, "split": split} for seed in seeds])


def start_of(prompt: Any) -> tuple[str, int]:
    """The game and the seed of a row of `rollout_dataset`; without a split in the row, the board is a training board."""
    game, _, start = prompt.partition(_MARK) if isinstance(prompt, str) else ("", "", "")
    seed, _, split = start.partition(_MARK)
    if not game or not seed.isdecimal() or split not in ("", *SHARES):
        raise UserError(f"the prompt {shown(prompt)}: expected GAME{_MARK}SEED; make the dataset with rollout_dataset")
    return game, seed_in(make_game(game), int(seed), cast(Split, split or "train"))


def episode_return(*, episode_return: Sequence[float], **_: Any) -> list[float]:
    """The reward function of `trl_rollout`: the return of each row's episode, less its format penalties."""
    return list(episode_return)


def trl_rollout(
    *,
    format_penalty: float = 1.0,
    prompt_format: PromptFormat = THINK_ACTION,
    on_episodes: Callable[[Sequence[Episode]], None] | None = None,
) -> Callable[[Sequence[Any], Any], dict[str, list[Any]]]:
    """For `GRPOTrainer(rollout_func=...)`, with `reward_funcs=episode_return` and rows of `rollout_dataset`.

    The trainer's own model samples, in the dtype of its weights, with the trainer's temperature, token limit, `top_k` and
    `top_p`. It must be whole in one process: not sharded, and not behind vLLM.

    Args:
        format_penalty: taken from the return for each unparsed reply, as `TrainConfig.format_penalty`.
        on_episodes: called with the episodes of each batch, in the order of its rows.
    """
    agents: list[LanguageModel] = []  # the trainer's model as a player; it notices changed weights

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        # 1) The games and seeds that `rollout_dataset` wrote into the prompts.
        starts: dict[str, dict[int, int]] = {}  # game → place in the batch → seed
        for place, (game, seed) in enumerate(map(start_of, prompts)):
            starts.setdefault(game, {})[place] = seed
        # 2) The model computes in the dtype of its weights, without accelerate's mixed precision, TRL's default.
        model, args = trainer.model, trainer.args
        if not agents or agents[0].model is not model:
            limits = {"max_new_tokens": args.max_completion_length, "top_k": args.top_k or 0, "top_p": args.top_p}
            agents[:] = [LanguageModel(model, trainer.processing_class, temperature=args.temperature, **limits)]
        was_training, wrapped, original = model.training, vars(model).get("forward"), vars(model).get("_original_forward")
        episodes: dict[int, Episode] = {}
        model.eval()
        with torch.autocast(model.device.type, enabled=False):
            if original:
                model.forward = original
            try:
                for game, seeds in starts.items():
                    keys = [(seed, random.getrandbits(31)) for seed in seeds.values()]
                    played = play_episodes(make_game(game), agents[0], keys, prompt_format=prompt_format)
                    episodes |= zip(seeds, played, strict=True)
            finally:
                model.train(was_training)
                if original:
                    model.forward = wrapped
        # 3) One row per episode, in the order of the batch.
        ordered = [episodes[place] for place in range(len(prompts))]
        if on_episodes:
            on_episodes(ordered)
        steps = [random.choice(episode.steps).completion for episode in ordered]
        return {
            "prompt_ids": [list(step.prompt_ids) for step in steps],
            "completion_ids": [list(step.token_ids) for step in steps],
            "logprobs": [list(step.log_probs) for step in steps],
            "episode_return": [composite_return(episode, format_penalty) for episode in ordered],
        }

    return rollout


def trl_environment(
    game: str | Game, *, format_penalty: float = 1.0, prompt_format: PromptFormat = THINK_ACTION
) -> Callable[[], GameEnvironment]:
    """For `GRPOTrainer(environment_factory=...)`, with rows of `environment_dataset`. Arguments as for `trl_rollout`."""
    return partial(GameEnvironment, make_game(game) if isinstance(game, str) else game, format_penalty, prompt_format)


@dataclass(eq=False)
class GameEnvironment:
    """One game at a time, as TRL plays it: `reset`, the tool `play`, and `get_reward`. Public methods are tools."""

    _game: Game
    _penalty: float
    _format: PromptFormat
    _play: Play = field(init=False, repr=False)

    def reset(self, seed: int, member: int | None = None, split: Split = "train", **row: Any) -> str:  # noqa: ARG002
        """Starts an episode, as `start_play`. Returns the first observation with its request; TRL appends it to the prompt."""
        self._play = start_play(self._game, self._format, seed, member, split)
        return build_prompt(self._game, self._play.state, self._format).user

    def play(self, reply: str) -> str:
        """Play one turn of the game.

        Args:
            reply: Your whole answer, in the format that the observation asks for.

        Returns:
            The next observation, or the last one when the game is over.
        """
        play = self._play
        if play.live:
            play.advance(self._game.observe(play.state), Completion(text=reply))
        # the model keeps the earlier turns itself
        prompt = build_prompt(self._game, play.state, self._format, past_turns(self._format, play.steps))
        return prompt.user if play.live else f"{prompt.observation}\n{OVER}"

    def get_reward(self) -> float:
        """The episode's return so far, less the penalty for each unparsed reply: the reward of `msgrpo train`."""
        return composite_return(self._play.episode(), self._penalty)
