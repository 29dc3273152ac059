"""Players by name: scripted players, the built-in base, models from the Hub or a folder, and players of other packages."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from msgrpo_hub.agent.policy import Chooser, Policy, ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.downloads.names import POCKET, built_in_adapters, exists, split_adapter, without_secrets
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.fields import checked
from msgrpo_hub.games import Game, base_game
from msgrpo_hub.games.game import has_scene, is_solvable
from msgrpo_hub.games.snake import is_snake
from msgrpo_hub.models.load_options import LoadOptions
from msgrpo_hub.players.dqn import load_dqn, trained_games
from msgrpo_hub.players.planner import choose_planner
from msgrpo_hub.players.scripted import (
    choose_greedy,
    choose_optimal,
    choose_random,
    choose_random_legal,
    choose_random_safe,
    choose_silent,
)
from msgrpo_hub.players.settings import PlayerSettings

SCRIPTED: dict[str, Chooser] = {
    "silent": choose_silent,
    "random": choose_random,
    "random-legal": choose_random_legal,
    "random-safe": choose_random_safe,
    "greedy": choose_greedy,
    "planner": choose_planner,
    "optimal": choose_optimal,
}

DRAWING = frozenset({"random", "random-legal", "random-safe"})
"""Scripted players that draw their actions; the others always answer one state in the same way."""

KNOWS: dict[str, Callable[[Game], bool]] = {"greedy": has_scene, "planner": is_snake, "optimal": is_solvable}
"""Scripted players that know only some games → whether they know a game."""

ExpectedPrompts = Callable[[PromptFormat | None], Sequence[Prompt]]
"""A player's own prompt format, or None → long prompts of the games that it will play."""

GROUP = "msgrpo_hub.players"
"""The entry point group through which other packages add players: the player's name, and a callable that makes its policy."""


@checked
def make_player(name: str, settings: PlayerSettings | None = None, expected_prompts: ExpectedPrompts | None = None) -> Policy:
    """The player of a name.

    Args:
        name: a scripted player, `pocket`, a built-in adapter such as `lake`, a Hub id or a folder (base or LoRA adapter,
            `@revision` allowed), `base+adapter`, `dqn:FOLDER`, `endpoint:URL#MODEL`, `provider:NAME/MODEL`, or a player of
            another package.
        settings: how a model acts; other players ignore them.
        expected_prompts: gives the prompts that a language model's context is checked for before its weights are loaded.

    Raises:
        UserError: no player of this name can be found.
    """
    if name in SCRIPTED:
        return ScriptedPolicy(SCRIPTED[name])
    settings = settings or PlayerSettings()
    kind, separator, rest = name.partition(":")
    if separator and kind == "dqn":
        return load_dqn(rest)
    if separator and kind in ("endpoint", "provider"):
        return _served(name, settings)
    if point := entry_point(name):
        policy: Policy = point.load()()
        return policy
    check_near_miss(name)
    from msgrpo_hub.models.language_model import LanguageModel  # loads torch only when needed
    from msgrpo_hub.models.scoring import ScorePolicy

    base, adapter = split_adapter(name)
    model = LanguageModel.from_pretrained(
        base,
        adapter or None,
        expected_prompts=expected_prompts,
        prompt_format=settings.chosen_format,
        chat_template=settings.chat_template or None,
        **{field: getattr(settings, field) for field in _OF_A_MODEL},
    )
    return ScorePolicy(model) if settings.mode == "score" else model


_OF_A_MODEL = (
    *(field.name for field in fields(LoadOptions)),
    *("temperature", "max_new_tokens", "chat_template_kwargs", "top_k", "top_p", "use_generation_config"),
)
"""Settings that a language model takes as they are."""


def _served(name: str, settings: PlayerSettings) -> Policy:
    shown = without_secrets(name)
    if settings.mode == "score":
        raise UserError(f"{shown!r} is behind a server, which cannot score given replies: use --mode generate")
    if settings.use_generation_config:
        raise UserError(f"{shown!r} is behind a server, whose files cannot be read: use --temperature, --top-k and --top-p")
    from msgrpo_hub.models.endpoint import make_endpoint  # loads the HTTP client only when needed

    extra: dict[str, Any] = {"top_k": settings.top_k} if settings.top_k else {}
    extra |= {"top_p": settings.top_p} if settings.top_p != 1 else {}
    extra |= {"chat_template_kwargs": dict(settings.chat_template_kwargs)} if settings.chat_template_kwargs else {}
    return make_endpoint(
        name,
        temperature=settings.temperature,
        max_new_tokens=settings.max_new_tokens,
        concurrency=settings.concurrency,
        extra_body=extra | settings.extra_body,
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
    names = [*SCRIPTED, POCKET, *built_in_adapters(), *entry_points(group=GROUP).names]
    if name not in names and difflib.get_close_matches(name, names, cutoff=0.8) and not exists(name):
        raise unknown("player", name, names)
