"""`msgrpo games`, `play` and `space`: the games and their rules, one episode in the terminal, and the demo on this machine."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import runpy
import sys
import textwrap
from itertools import groupby
from typing import Any, get_args

from msgrpo_hub.agent.policy import Policy, ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import system_text
from msgrpo_hub.cli.flags import add_fields, add_json, field_docs, given_fields, print_next, read_as, show
from msgrpo_hub.downloads.names import built_in_adapters, without_secrets
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import Count, Number
from msgrpo_hub.games import FURTHER, Game, all_games, episode_seed, make_game, render_text
from msgrpo_hub.games.registry import import_game
from msgrpo_hub.models.load_options import Device, LoadOptions
from msgrpo_hub.players.registry import SCRIPTED, ModelPlayer, find_player, import_player, make_player
from msgrpo_hub.players.sample_play import prompts_of
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rollout import play_episodes, replayed_states

ABOUT = ("id", "rows", "columns", "horizon", "actions", "reward_range", "instructions", "rules")
"""Attributes of a game that `msgrpo games --json` prints."""


def add_games(parser: argparse.ArgumentParser) -> None:
    text = "show the rules and the task hash of these games. Default: list all"
    parser.add_argument("game", metavar="GAME", nargs="*", help=text)
    either = parser.add_mutually_exclusive_group()
    text = "print a suite of these games as TOML, as `msgrpo eval --suite` reads it"
    either.add_argument("--suite", action="store_true", help=text)
    parser.add_argument("--episodes", type=read_as(Count), default=50, metavar="N", help="of that suite. Default: 50")
    parser.add_argument("--split", choices=("validation", "test"), default="test", help="of that suite. Default: test")
    add_json(either, "print ids, actions, rewards and rules as JSON")


def run_games(options: argparse.Namespace) -> None:
    if not options.game:
        if options.suite:
            raise UserError("a suite of no games: expected their ids, such as `msgrpo games FrozenLake-NotSlippery-v1 --suite`")
        games = [*all_games().values()]
        lines = (
            f"{g.id:<27} {g.rows}×{g.columns}, {g.horizon} turns, rewards of a step in {list(g.reward_range)}" for g in games
        )
        show([{name: getattr(game, name) for name in ABOUT} for game in games], "\n".join(lines), as_json=options.json)
        # ids that differ only in the size of the board are joined: Lake-2x2-v1 … Lake-8x8-v1
        sizes = [[*same] for _, same in groupby(FURTHER, lambda name: re.sub(r"-\d+x\d+-", "-", name))]
        further = f"Of others, and variants of ours: {', '.join(' … '.join(dict.fromkeys([ids[0], ids[-1]])) for ids in sizes)}"
        print(textwrap.fill(further, 100, subsequent_indent="    ", break_on_hyphens=False), file=sys.stderr)
        print_next("msgrpo play FrozenLake-NotSlippery-v1 --player human")
        return
    from msgrpo_hub.evaluation.suites import hash_of  # slow to import

    ids = [*dict.fromkeys(map(import_game, options.game))]
    if options.suite:
        tasks = [f'"{game_id}" = "{hash_of(game_id)}"' for game_id in ids]
        split = [] if options.split == "test" else [f'split = "{options.split}"']
        print("\n".join([f"episodes = {options.episodes}", *split, "", "[tasks]", *tasks]))
        print_next("write it to mine.toml, then: msgrpo eval random --suite mine.toml")
        return
    games = [make_game(game_id) for game_id in ids]
    texts = [
        "\n".join([f"{g.id}   task hash {hash_of(g.id)}", g.instructions, ", ".join(g.actions), *g.rules, ""]) for g in games
    ]
    data = [{name: getattr(game, name) for name in ABOUT} | {"task_hash": hash_of(game.id)} for game in games]
    show(data, "\n".join(texts), as_json=options.json)
    print_next(f"msgrpo games {options.game[0]} --suite > mine.toml")


PLAYERS = (
    f"{', '.join(SCRIPTED)}; pocket (the built-in base); "
    f"{', '.join(built_in_adapters())} (adapters of it, built in); a model or LoRA adapter, as a Hub id or a folder; "
    "USER/REPO/FOLDER (an adapter in a folder of a repository); BASE+ADAPTER; "
    "dqn:FOLDER; endpoint:URL#MODEL; provider:NAME/MODEL; module:object (code of your own)"
)
"""The kinds of players, for the help texts."""


def quiet_loading(player: str) -> None:
    """Switches off transformers' progress bars for local loading; downloads keep theirs."""
    if isinstance(find_player(player), ModelPlayer):
        from msgrpo_hub.models.loading import disable_progress_bar

        disable_progress_bar()


def add_play(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("game", metavar="GAME", help="id of a game, as `msgrpo games` lists them, ID:VARIANT, or module:object")
    parser.add_argument("--player", default="random", help=f"human (you type the actions), or one of {PLAYERS}. Default: random")
    parser.add_argument("--seed", type=read_as(Number), metavar="N", default=0, help="number of the test episode. Default: 0")
    add_json(parser, "print the episode as JSON instead of drawing it")
    add_fields(parser, PlayerSettings, "players that are models")


def run_play(options: argparse.Namespace) -> None:
    # 1) play
    game, settings = make_game(import_game(options.game)), PlayerSettings(**given_fields(options, PlayerSettings))
    if options.player == "human":
        print(f"{system_text(game)}\n", file=sys.stderr)
        policy: Policy = ScriptedPolicy(choose_human)
    else:
        import_player(options.player)
        quiet_loading(options.player)
        policy = make_player(options.player, settings, prompts_of([game]))
    episode_key = (episode_seed(game.id, "test", options.seed), 0)
    [episode] = play_episodes(game, policy, [episode_key], prompt_format=settings.chosen_format)
    if episode.error:
        player, turn = without_secrets(options.player), len(episode.steps) + 1
        raise UserError(f"{player!r} gave no reply on turn {turn} ({episode.error}): try again later")

    # 2) show
    states = replayed_states(game, episode)
    drawn = [f"{render_text(game, states[0])}\n"]
    for turn, (step, state) in enumerate(zip(episode.steps, states[1:], strict=True), start=1):
        action = f"action {step.action or 'none (' + step.status + ')'}, reward {step.reward:g}"
        drawn += [f"turn {turn}: {step.completion.text}", action, f"{render_text(game, state)}\n"]
    end = "success" if episode.success else "no success"
    drawn.append(f"{game.id}: {end} after {len(episode.steps)} turns, reward {episode.reward:g}")
    steps = [
        {"observation": s.observation, "reply": s.completion.text, "action": s.action, "status": s.status, "reward": s.reward}
        for s in episode.steps
    ]
    about = {"game": episode.game_id, "seed": episode.seed, "reward": episode.reward, "success": episode.success}
    show(about | {"steps": steps}, "\n".join(drawn), as_json=options.json)
    other = "pocket" if options.player == "human" else "human"
    print_next(f"msgrpo play {options.game} --player {other} --seed {options.seed}")


def choose_human(game: Game, state: Any, rng: Any) -> str:  # noqa: ARG001
    """Asks for an action on standard input; the first letter is enough."""
    print(render_text(game, state), file=sys.stderr)
    while True:
        print(f"{' / '.join(game.actions)}? ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            raise UserError(f"no more input: expected one of {', '.join(game.actions)} on a line")
        wanted = line.strip().casefold()
        for action in game.actions:
            if wanted and action.casefold().startswith(wanted):
                return action


def add_space(parser: argparse.ArgumentParser) -> None:
    """Run the demo on this machine: watch, compare, play and change the rules in a browser. The environment variables
    GRADIO_SERVER_NAME and GRADIO_SERVER_PORT set the address it listens on."""
    text = "folder of a run of `msgrpo train`: its adapter plays beside its base. Default: the built-in adapters"
    parser.add_argument("folder", metavar="RUN", nargs="?", help=text)
    parser.add_argument("--device", choices=get_args(Device), help=f"{field_docs(LoadOptions)['device']} Default: auto")


def run_space(options: argparse.Namespace) -> None:
    if importlib.util.find_spec("gradio") is None:
        raise UserError("the demo needs gradio, which is not installed: run `pip install 'msgrpo-hub[space]'`")
    from msgrpo_hub.hub.spaces import app_folder

    app = app_folder() / "app.py"
    if not app.exists():
        raise UserError(f"no demo at {str(app)!r}: expected it in an install or a clone of msgrpo-hub")
    if options.device:
        from msgrpo_hub.models.devices import check_device

        check_device(options.device)
        os.environ["MSGRPO_DEVICE"] = options.device
    sys.path.insert(0, str(app.parent))  # as on a Space, whose root is this folder
    if options.folder:
        os.environ["MSGRPO_RUN"] = options.folder
        importlib.import_module("players").own_run()  # refuses a folder without an adapter
    print("Next: open the address below; `msgrpo push space USER/NAME` deploys it", file=sys.stderr)
    runpy.run_path(str(app), run_name="__main__")
