"""The players, their waiting lines, and the checks of a visitor's request. One model plays at a time.

Built-in players need no network: the scripted ones, the built-in base, and its adapters. Any other player is a repository on the
Hub: `USER/NAME`, a base model or a LoRA adapter with safetensors, `@revision` allowed, or `BASE+ADAPTER`.
"""

from __future__ import annotations

import json
import os
import re
import threading
import tomllib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar, cast

from msgrpo_hub.agent import Policy, PromptFormat, format_of
from msgrpo_hub.downloads.fetching import resolve
from msgrpo_hub.downloads.names import POCKET, built_in_adapters
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, VARIANTS, Game, Variant, make_game
from msgrpo_hub.players import PlayerSettings, can_play, make_player, prompts_of
from msgrpo_hub.players.sample_play import RecordingPolicy
from msgrpo_hub.rollout import play_episodes

BUNDLE = Path(__file__).parent / "bundle"
SCRIPTED = ("random", "random-safe", "greedy", "planner", "optimal")
ADAPTERS = built_in_adapters()
BUILT_IN = (*SCRIPTED, POCKET, *ADAPTERS)

SETTINGS = Path(__file__).parent / "space.json"
"""Written by `msgrpo push space --adapter …`: `{"adapter": "USER/NAME@COMMIT"}`, the adapter shown first."""

LARGEST = 4_000_000_000
"""Largest size of a model's weights, in bytes."""

KEPT = 2
"""Models from the Hub that stay loaded. The built-in ones, of a few megabytes, all do."""

_SOURCE = r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}(?:@[A-Za-z0-9][\w./-]{0,95})?"
_NAME = re.compile(rf"({_SOURCE})(?:\+({_SOURCE}))?", re.ASCII)

GAME_IDS = [*GAMES, *(f"{name}:{variant}" for name in ("FrozenLake-NotSlippery-v1", "Snake-Solo-v1") for variant in VARIANTS)]
"""The games that the lists offer: the registered ones, and all variants of two of them."""

LAST_EPISODE = 9_999
"""The number of the last test episode that a visitor can ask for."""

_models: OrderedDict[str, Policy] = OrderedDict()
formats: dict[str, PromptFormat] = {}
"""The prompt format of each model that has played; scripted players have none."""

Play = TypeVar("Play", bound=Callable[..., Any])


@cache
def bundled(name: str) -> Any:
    """A file of the bundle: `replays` (game → player → number → replies), `compare`, `rules` (player → answer), `leaderboard`."""
    return json.loads((BUNDLE / f"{name}.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Line:
    """A waiting line: requests are served in their order, and only a limited number may wait.

    A request takes a place, which it keeps until it is answered, and then runs each of its batches. Only the place can be
    refused.
    """

    name: str
    """What its requests wait for."""
    threads: ThreadPoolExecutor
    """A thread for each batch that runs at the same time."""
    places: threading.BoundedSemaphore
    """A place for each request, running or waiting."""

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request. Raises `UserError` if the line is full."""
        if not self.places.acquire(blocking=False):
            raise UserError(f"too many requests wait for {self.name}: try again in a minute")
        try:
            yield
        finally:
            self.places.release()

    def run(self, function: Callable[..., Any], *given: Any) -> Any:
        """Calls a function when its turn comes, and returns its result."""
        return self.threads.submit(copy_context().run, function, *given).result()


MODELS = Line("a model", ThreadPoolExecutor(1), threading.BoundedSemaphore(12))
SIMPLE = Line("a scripted player", ThreadPoolExecutor(2), threading.BoundedSemaphore(24))
DATASETS = Line("a results dataset", ThreadPoolExecutor(1), threading.BoundedSemaphore(4))


class Run(NamedTuple):
    """The first game of a run, the sources of its adapter and its base by name, and how both play: as in its test."""

    game: str
    sources: dict[str, str]
    settings: dict[str, Any]


@cache
def own_run() -> Run | None:
    """The run that `msgrpo space RUN` names in the variable MSGRPO_RUN, if any. Raises `UserError` if it has no adapter."""
    if not (folder := os.environ.get("MSGRPO_RUN", "")):
        return None
    path = Path(folder).resolve()
    if not all((path / name).is_file() for name in ("config.toml", "adapter/adapter_config.json")):
        raise UserError(f"{folder!r} holds no trained adapter: expected the folder of a finished run of `msgrpo train`")
    config = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
    same = ("max_new_tokens", "prompt_format", "chat_template_kwargs", "dtype", "load_in_4bit")
    settings = {name: config[name] for name in same if name in config} | {"temperature": config["eval_temperature"]}
    if (template := path / "adapter" / "chat_template.jinja").exists():
        settings["chat_template"] = str(template)
    base = Path(config["model"]).name if Path(config["model"]).is_dir() else config["model"]
    sources = {f"{path.parent.name}/{path.name}": str(path / "adapter"), base: config["model"]}
    return Run(game=re.split("[,=]", config["game"])[0], sources=sources, settings=settings)


def shown_first() -> str:
    """The adapter of the visitor's own run, the one that the Space was deployed with, or the built-in one for Frozen Lake."""
    if run := own_run():
        return next(iter(run.sources))
    return check_name(str(json.loads(SETTINGS.read_text(encoding="utf-8"))["adapter"])) if SETTINGS.exists() else "lake"


def on_gpu(play: Play) -> Play:
    """Runs a call on a GPU if ZeroGPU lends one; elsewhere the call is unchanged."""
    try:
        import spaces  # type: ignore[import-not-found]
    except ImportError:
        return play
    decorated: Play = spaces.GPU(duration=60)(play)
    return decorated


# ---- checks of a visitor's request: anything unexpected is refused in one line


def game_of(name: str) -> Game:
    """Returns the game with this id. Raises `UserError` for an unknown one."""
    if not isinstance(name, str) or len(name) > 80:
        raise UserError(f"a game's id of {len(str(name))} characters: expected one such as 'FrozenLake-NotSlippery-v1'")
    return make_game(name)


def number(value: float, low: int = 0, high: int = LAST_EPISODE, what: str = "seed") -> int:
    """Returns a whole number in a range. Raises `UserError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or not low <= value <= high:
        raise UserError(f"{what} {str(value)[:30]!r}: expected a whole number from {low} to {high}")
    return int(value)


def text(value: str, longest: int, what: str) -> str:
    """Returns a text without its control characters. Raises `UserError` if it is too long."""
    if not isinstance(value, str) or len(value) > longest:
        raise UserError(f"{what} of {len(str(value)):,} characters: expected at most {longest:,}")
    return "".join(c for c in value.replace("\r\n", "\n") if c == "\n" or c.isprintable())


def check_name(name: str) -> str:
    """Returns the name of a player. Raises `UserError` if it is neither built in nor a name on the Hub."""
    shown = str(name) if len(str(name)) <= 60 else f"{str(name)[:60]}…"
    if name in BUILT_IN or ((run := own_run()) and name in run.sources):
        return name
    if not isinstance(name, str) or len(name) > 200 or not _NAME.fullmatch(name) or ".." in name:
        raise UserError(f"unknown player {shown!r}: expected one of {', '.join(BUILT_IN)}, or a model on the Hub as USER/NAME")
    if any(Path(part).exists() for part in name.split("+")):
        raise UserError(f"{shown!r} is a folder of the server: expected a model on the Hub as USER/NAME")
    return name


def check_player(name: str, game: Game) -> str:
    """Returns the name. Raises `UserError` like `check_name`, and for a player that cannot play the game."""
    if not can_play(check_name(name), game):
        others = "'greedy' or 'planner'" if name == "optimal" else "'optimal'"
        raise UserError(f"the player {name!r} cannot play {game.id}: take {others}")
    return name


def line(*names: str) -> Line:
    """The waiting line of a request for these players."""
    return SIMPLE if all(name in SCRIPTED for name in names) else MODELS


def replies(name: str, game: Game, seed: int) -> Iterator[list[Completion]]:
    """Plays one episode like `play` and yields the replies so far after each turn; it ends when nobody follows it any more.

    On ZeroGPU, where a model plays in another process, all come at once.
    """
    told: SimpleQueue[list[Completion]] = SimpleQueue()
    left = threading.Event()

    def hear(so_far: list[Completion]) -> None:
        if left.is_set():
            raise CancelledError
        told.put([*so_far])

    hears = None if find_spec("spaces") else hear
    future = MODELS.threads.submit(copy_context().run, _load_and_play, name, game, [(seed, 0)], hears)
    future.add_done_callback(lambda _: told.put([]))
    try:
        while so_far := told.get():
            yield so_far
        [episode] = future.result()
        yield [step.completion for step in episode.steps]
    finally:
        left.set()
        future.cancel()


def play(name: str, game: Game, seeds: Sequence[int]) -> list[Episode]:
    """Plays one episode from each seed, when it is this player's turn. The request already has a place in the line.

    Raises `UserError` for a player that is unknown, too large or cannot be loaded, and for a prompt longer than its context.
    """
    check_player(name, game)
    episode_keys = [(seed, 0) for seed in seeds]
    if name in SCRIPTED:
        episodes: list[Episode] = SIMPLE.run(play_episodes, game, make_player(name), episode_keys)
    else:
        episodes = MODELS.run(_load_and_play, name, game, episode_keys)
    return episodes


def _load_and_play(
    name: str, game: Game, episode_keys: list[tuple[int, int]], hear: Callable[[list[Completion]], None] | None = None
) -> list[Episode]:
    words = None
    if isinstance(game, Variant) and game.id.partition(":")[2] not in VARIANTS:  # a game in a visitor's words
        words = (game.game.id, dict(game.names), game.instructions, tuple(game.rules))
    load(name, game)  # loaded here, since the process that gets the GPU ends with the call
    if hear:
        heard = RecordingPolicy(_models[name])
        return play_episodes(game, heard, episode_keys, lambda _: hear(heard.completions), prompt_format=formats[name])
    return _play_model(name, game.id, words, episode_keys)


@on_gpu
def _play_model(
    name: str, game_id: str, words: tuple[str, dict[str, str], str, tuple[str, ...]] | None, episode_keys: list[tuple[int, int]]
) -> list[Episode]:
    """Plays. On ZeroGPU the arguments are pickled for another process, so a game goes by its id and its words."""
    if words is None:
        return play_episodes(make_game(game_id), _models[name], episode_keys)
    base, names, instructions, rules = words
    game = Variant(cast(Any, make_game(base)), game_id, names=names, instructions=instructions, rules=rules)
    return play_episodes(game, _models[name], episode_keys)


def load(name: str, game: Game) -> None:
    """Loads a model unless it is loaded. A new one must have room for the game's prompts."""
    if name not in _models:
        source, settings = name, {"temperature": 1.0, "max_new_tokens": 32}  # as in the benchmark
        if (run := own_run()) and name in run.sources:
            source, settings = run.sources[name], run.settings
        elif name not in BUILT_IN:
            source, settings = resolve(name, LARGEST).pinned, {"temperature": 0.5, "max_new_tokens": 256}
        device = cast(Any, os.environ.get("MSGRPO_DEVICE", "auto"))  # a variable of the Space, or a flag of `msgrpo space`
        loaded = make_player(source, PlayerSettings(device=device, **cast(Any, settings)), prompts_of([game]))
        for oldest in [each for each in (*_models, name) if each not in BUILT_IN][:-KEPT]:
            del _models[oldest]
        _models[name], formats[name] = loaded, format_of(loaded)
    _models.move_to_end(name)
