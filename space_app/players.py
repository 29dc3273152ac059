"""The players: their names are validated, a model's size is checked before it is loaded, and one model plays at a time.

Built-in players need no network: the scripted ones, the built-in base, and its built-in adapters. Any other player is a
repository on the Hub: `USER/NAME`, a base model or a LoRA adapter with safetensors, `@revision` allowed, or `BASE+ADAPTER`.
"""

from __future__ import annotations

import json
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any, TypeVar, cast

import lines

from msgrpo_hub.agent import THINK_ACTION, Policy, PromptFormat, format_of
from msgrpo_hub.downloads.fetching import resolve
from msgrpo_hub.downloads.names import POCKET, built_in_adapters
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import VARIANTS, Game, make_game
from msgrpo_hub.players import PlayerSettings, can_play, make_player, prompts_of
from msgrpo_hub.rollout import play_episodes

BUNDLE = Path(__file__).parent / "bundle"
SCRIPTED = ("random", "random-safe", "greedy", "planner", "optimal")
ADAPTERS = built_in_adapters()
"""The adapters of the built-in base that come with the package."""

BUILT_IN = (*SCRIPTED, POCKET, *ADAPTERS)

SETTINGS = Path(__file__).parent / "space.json"
"""Written by `msgrpo push space --adapter …`: `{"adapter": "USER/NAME@COMMIT"}`, the adapter shown first."""

LARGEST = 4_000_000_000
"""Bytes of weights that are loaded at most: about two thousand million parameters in 16 bits."""

KEPT = 2
"""Models from the Hub that stay loaded. The built-in ones, of a few megabytes, all do."""

LONGEST_NAME = 200

_SOURCE = r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}(?:@[A-Za-z0-9][\w./-]{0,95})?"
_NAME = re.compile(rf"({_SOURCE})(?:\+({_SOURCE}))?", re.ASCII)

_models: OrderedDict[str, Policy] = OrderedDict()
_formats: dict[str, PromptFormat] = {}
_thread = ThreadPoolExecutor(1, "models")
"""Where every model plays: memory that a thread once used for computing stays with it, and requests come in dozens of threads."""

Play = TypeVar("Play", bound=Callable[..., Any])


def shown_first() -> str:
    """The adapter that the Space was deployed with, or the built-in one for Frozen Lake."""
    if not SETTINGS.exists():
        return "lake"
    return check_name(str(json.loads(SETTINGS.read_text(encoding="utf-8"))["adapter"]))


def on_gpu(play: Play) -> Play:
    """Runs a call on a GPU where ZeroGPU lends one; elsewhere the call is unchanged."""
    try:
        import spaces  # type: ignore[import-not-found]
    except ImportError:
        return play
    decorated: Play = spaces.GPU(duration=60)(play)
    return decorated


def check_name(name: str) -> str:
    """Returns the name of a player. Raises `UserError` if it is neither built in nor a name on the Hub."""
    if not isinstance(name, str):
        raise UserError(f"a player's name is a text: expected one of {', '.join(BUILT_IN)}, or a model on the Hub as USER/NAME")
    shown = name if len(name) <= 60 else f"{name[:60]}…"
    if name in BUILT_IN:
        return name
    if len(name) > LONGEST_NAME:
        raise UserError(f"a player's name of {len(name)} characters ({shown!r}): expected at most {LONGEST_NAME}")
    if re.match(r"(endpoint|provider|dqn):", name):
        raise UserError(f"{shown!r}: servers and folders are for the command line; expected a built-in player or USER/NAME")
    if not _NAME.fullmatch(name) or ".." in name or any(Path(part).exists() for part in name.split("+")):
        raise UserError(f"unknown player {shown!r}: expected one of {', '.join(BUILT_IN)}, or a model on the Hub as USER/NAME")
    return name


def check_player(name: str, game: Game) -> str:
    """Returns the name. Raises `UserError` like `check_name`, and for a player that cannot play the game."""
    if not can_play(check_name(name), game):
        others = "'greedy' or 'planner'" if name == "optimal" else "'optimal'"
        raise UserError(f"the player {name!r} cannot play {game.id}: take {others}")
    return name


def line(*names: str) -> lines.Line:
    """The line in which a request for these players waits."""
    return lines.SCRIPTED if all(name in SCRIPTED for name in names) else lines.MODELS


def play(name: str, game: Game, seeds: Sequence[int]) -> list[Episode]:
    """Plays one episode from each seed, when it is this player's turn. A request has taken a place in the line before.

    Raises:
        UserError: an unknown player, a model that is too large or cannot be loaded, or a prompt longer than its context.
    """
    check_player(name, game)
    episode_keys = [(seed, 0) for seed in seeds]
    with line(name).turn():
        if name in SCRIPTED:
            return play_episodes(game, make_player(name), episode_keys)
        return _thread.submit(copy_context().run, _load_and_play, name, game, episode_keys).result()


def asked_in(name: str) -> PromptFormat:
    """The prompt format of a player that has played: a model's own, or think-action."""
    return _formats.get(name, THINK_ACTION)


def _load_and_play(name: str, game: Game, episode_keys: list[tuple[int, int]]) -> list[Episode]:
    variant = game.id.partition(":")[2] in VARIANTS
    _model(name, game)  # loaded in this process, which lasts; the process that gets the GPU ends with the call
    return _play_model(name, game.id if variant else game, episode_keys)


@on_gpu
def _play_model(name: str, game: Game | str, episode_keys: list[tuple[int, int]]) -> list[Episode]:
    """On ZeroGPU the arguments go to another process. A variant goes by its id, since its functions cannot be sent."""
    return play_episodes(make_game(game) if isinstance(game, str) else game, _models[name], episode_keys)


def _model(name: str, game: Game) -> Policy:
    """A loaded model, which stays loaded for a while; a new one must have room for the game's prompts."""
    if name not in _models:
        loaded = _load(name, game)
        from_hub = [each for each in (*_models, name) if each not in BUILT_IN]
        for oldest in from_hub[:-KEPT]:
            del _models[oldest]
        _models[name] = loaded
        _formats[name] = format_of(loaded)  # stays when another request's model takes its place
    _models.move_to_end(name)
    return _models[name]


def _load(name: str, game: Game) -> Policy:
    if name in BUILT_IN:
        source = name
        settings: dict[str, Any] = {"temperature": 1.0, "max_new_tokens": 32}  # as in the benchmark
    else:
        source, settings = pinned(name), {"temperature": 0.5, "max_new_tokens": 256}
    device = cast(Any, os.environ.get("MSGRPO_DEVICE", "auto"))  # a variable of the Space, or a flag of `msgrpo space`
    return make_player(source, PlayerSettings(device=device, **settings), prompts_of([game]))


def warm_up() -> None:
    """Loads the adapter that is shown first if it is built in: torch alone takes seconds, which a visitor would wait for."""
    if shown_first() in BUILT_IN:
        _thread.submit(_model, shown_first(), make_game("FrozenLake-NotSlippery-v1"))


def pinned(name: str) -> str:
    """`BASE@COMMIT` or `BASE@COMMIT+ADAPTER@COMMIT`: what a name on the Hub stands for now.

    Raises:
        UserError: it cannot be reached, is too large for this Space, or is refused by the gate that every download passes.
    """
    return resolve(name, LARGEST).pinned
