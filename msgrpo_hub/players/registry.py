"""Players by name: scripted players, the built-in base, models from the Hub or a folder, and players of other packages."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from msgrpo_hub.agent.policy import Chooser, Policy, ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.downloads.names import split_adapter
from msgrpo_hub.downloads.play_settings import Scalar
from msgrpo_hub.errors import unknown
from msgrpo_hub.games import Game, base_game
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.games.scene import has_scene
from msgrpo_hub.games.snake import is_snake
from msgrpo_hub.models.load_options import LoadOptions
from msgrpo_hub.players.dqn import load_dqn, trained_games
from msgrpo_hub.players.planner import choose_planner
from msgrpo_hub.players.scripted import choose_greedy, choose_optimal, choose_random, choose_random_legal, choose_random_safe

SCRIPTED: dict[str, Chooser] = {
    "random": choose_random,
    "random-legal": choose_random_legal,
    "random-safe": choose_random_safe,
    "greedy": choose_greedy,
    "planner": choose_planner,
    "optimal": choose_optimal,
}

KNOWS: dict[str, Callable[[Game], bool]] = {"greedy": has_scene, "planner": is_snake, "optimal": is_solvable}
"""Scripted players that know only some games → whether they know a game."""

ExpectedPrompts = Callable[[PromptFormat | None], Sequence[Prompt]]
"""A player's own prompt format, or None → long prompts of the games that it will play."""

GROUP = "msgrpo_hub.players"
"""The entry point group through which other packages add players: the player's name, and a callable that makes its policy."""


def make_player(
    name: str,
    *,
    temperature: float = 1.0,
    max_new_tokens: int = 256,
    chat_template: str | None = None,
    prompt_format: PromptFormat | None = None,
    concurrency: int = 8,
    expected_prompts: ExpectedPrompts | None = None,
    load: LoadOptions = LoadOptions(),  # noqa: B008
    chat_template_kwargs: Mapping[str, Scalar] | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
    use_generation_config: bool = False,
) -> Policy:
    """The player of a name.

    Args:
        name: a scripted player, `pocket`, a Hub id or a folder (base or LoRA adapter, `@revision` allowed), `base+adapter`,
            `dqn:FOLDER`, `endpoint:URL#MODEL`, `provider:NAME/MODEL`, or a player of another package.
        temperature: sampling temperature of a language model; 0 is greedy.
        max_new_tokens: largest length of a language model's reply, in tokens.
        chat_template: file with a Jinja chat template, for a model without one.
        prompt_format: prompt format of a language model; None means the format stored with its adapter, if any.
        concurrency: number of requests that are sent to a server at the same time.
        expected_prompts: gives the prompts that a language model's context is checked for before its weights are loaded.
        load: how the weights of a language model are loaded.
        chat_template_kwargs: variables of the chat template, such as `enable_thinking`, besides those stored with an adapter.
        top_k: number of tokens that a language model samples from; 0 is all.
        top_p: probability of the tokens that a language model samples from; 1 is all.
        use_generation_config: takes temperature, top_k and top_p from the model's own generation config.

    Raises:
        UserError: no player of this name can be found.
    """
    if name in SCRIPTED:
        return ScriptedPolicy(SCRIPTED[name])
    kind, separator, rest = name.partition(":")
    if separator and kind == "dqn":
        return load_dqn(rest)
    if separator and kind in ("endpoint", "provider"):
        from msgrpo_hub.models.endpoint import make_endpoint  # loads the HTTP client only when needed

        extra: dict[str, Any] = {"top_k": top_k} if top_k else {}
        extra |= {"top_p": top_p} if top_p != 1 else {}
        extra |= {"chat_template_kwargs": dict(chat_template_kwargs)} if chat_template_kwargs else {}
        return make_endpoint(
            name, temperature=temperature, max_new_tokens=max_new_tokens, concurrency=concurrency, extra_body=extra
        )
    if point := entry_point(name):
        policy: Policy = point.load()()
        return policy
    check_near_miss(name)
    from msgrpo_hub.models.language_model import LanguageModel  # loads torch only when needed

    base, adapter = split_adapter(name)
    return LanguageModel.from_pretrained(
        base,
        adapter or None,
        chat_template=chat_template,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        prompt_format=prompt_format,
        expected_prompts=expected_prompts,
        dtype=load.dtype,
        device=load.device,
        load_in_4bit=load.load_in_4bit,
        device_map=load.device_map,
        chat_template_kwargs=chat_template_kwargs,
        top_k=top_k,
        top_p=top_p,
        use_generation_config=use_generation_config,
        engine=load.engine,
    )


def entry_point(name: str) -> EntryPoint | None:
    """The entry point of a player that another package adds, if any."""
    return next(iter(entry_points(group=GROUP, name=name)), None)


def can_play(name: str, game: Game) -> bool:
    """Whether a player knows a game: `optimal` plays only solvable games, and a DQN only those it was trained on."""
    if name.startswith("dqn:"):
        return game.id.partition(":")[0] in trained_games(name.removeprefix("dqn:"))
    return name not in KNOWS or KNOWS[name](base_game(game))


def check_near_miss(name: str) -> None:
    """Rejects a name close to that of a known player, before the Hub is searched for it."""
    names = [*SCRIPTED, "pocket", *entry_points(group=GROUP).names]
    if name not in names and difflib.get_close_matches(name, names, cutoff=0.8) and not Path(name).exists():
        raise unknown("player", name, names)
