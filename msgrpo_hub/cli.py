"""Floor 7, the command line: the only place that parses arguments or prints."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from msgrpo_hub import __version__
from msgrpo_hub.agent.policy import Policy, ScriptedPolicy
from msgrpo_hub.agent.prompt import system_text
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.players import SCRIPTED, make_player
from msgrpo_hub.evaluation.replay import replayed_states
from msgrpo_hub.flags import Parser, add_fields, check_flags
from msgrpo_hub.games import GAMES, Game, draw, episode_seed, make_game
from msgrpo_hub.rollout import play_episodes

PLAYERS = f"{', '.join(SCRIPTED)}, human, pocket, a Hub id, a folder, or base+adapter"


def main(arguments: list[str] | None = None) -> None:
    """The `msgrpo` command. Exit status 0: done; 2: input that a user can mend; 130: interrupted."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", category=FutureWarning)
    given = sys.argv[1:] if arguments is None else arguments
    try:
        parser, commands = make_parser()
        if given and given[0] in commands:
            check_flags(given[1:], commands[given[0]])
        options = parser.parse_args(given)
        options.run(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted; every finished update is safe, go on with --resume", file=sys.stderr)
        sys.exit(130)


def make_parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser, and the parser of each command."""
    parser = Parser(prog="msgrpo", description="Small language models that act: MS-GRPO for text games.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    _games_command(commands)
    _play_command(commands)
    _train_command(commands)
    return parser, dict(commands.choices)


# ---- msgrpo games


def _games_command(commands: Any) -> None:
    parser = commands.add_parser("games", help="the registered games, their ids and rules")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_games)


def _games(options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps([describe(game) for game in GAMES.values()], indent=2))
        return
    for game in GAMES.values():
        print(f"{game.id:<28}{game.size}×{game.size}, {game.horizon} turns, reward of a step in {list(game.reward_range)}")
    print("\nNext: msgrpo play FrozenLake-NotSlippery-v1 --player human", file=sys.stderr)


def describe(game: Game) -> dict[str, Any]:
    """A game as plain data."""
    return {
        "id": game.id,
        "size": game.size,
        "horizon": game.horizon,
        "actions": game.actions,
        "reward_range": game.reward_range,
        "instructions": game.instructions,
        "rules": game.rules,
    }


# ---- msgrpo play


def _play_command(commands: Any) -> None:
    parser = commands.add_parser("play", help="one episode, drawn in the terminal")
    parser.add_argument("game", help="id of the game, as `msgrpo games` lists them")
    parser.add_argument("--player", default="random", help=f"{PLAYERS}; default: random")
    parser.add_argument("--seed", type=int, default=0, help="number of the test episode; default: 0")
    parser.add_argument("--temperature", type=float, default=1.0, help="of a language model, 0 is greedy; default: 1")
    parser.add_argument("--max-new-tokens", type=int, default=256, help="limit of a language model's reply; default: 256")
    parser.add_argument("--chat-template", help="file with a Jinja chat template, for a model without one")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_play)


def _play(options: argparse.Namespace) -> None:
    game = make_game(options.game)
    if options.player == "human":
        policy: Policy = ScriptedPolicy(choose_human)
    else:
        _quiet_loading(options.player)
        policy = make_player(
            options.player,
            temperature=options.temperature,
            max_new_tokens=options.max_new_tokens,
            chat_template=options.chat_template,
        )
    [episode] = play_episodes(game, policy, [(episode_seed(game.id, "test", options.seed), 0)])
    if options.json:
        print(json.dumps(_episode_json(episode), indent=2))
        return
    _print_episode(game, episode)
    print(f"\nNext: msgrpo play {game.id} --player human --seed {options.seed}", file=sys.stderr)


def _print_episode(game: Game, episode: Episode) -> None:
    states = replayed_states(game, episode)
    print(f"{draw(game, states[0])}\n")
    for turn, (step, state) in enumerate(zip(episode.steps, states[1:], strict=True), start=1):
        print(f"turn {turn}: {step.completion.text}")
        print(f"action {step.action or 'none (' + step.status + ')'}, reward {step.reward:g}\n{draw(game, state)}\n")
    end = "success" if episode.success else "no success"
    print(f"{game.id}: {end} after {len(episode.steps)} turns, reward {episode.reward:g}")


def _episode_json(episode: Episode) -> dict[str, Any]:
    steps = [
        {"observation": s.observation, "reply": s.completion.text, "action": s.action, "status": s.status, "reward": s.reward}
        for s in episode.steps
    ]
    return {"game": episode.game_id, "seed": episode.seed, "reward": episode.reward, "success": episode.success, "steps": steps}


def choose_human(game: Game, state: Any, rng: Any) -> str:  # noqa: ARG001
    """Asks for an action on standard input; the first letter is enough."""
    if state.turn == 0:
        print(f"{system_text(game)}\n", file=sys.stderr)
    print(draw(game, state), file=sys.stderr)
    while True:
        print(f"{' / '.join(game.actions)}? ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            raise UserError(f"no more input: expected one of {', '.join(game.actions)} a line")
        wanted = line.strip().casefold()
        for action in game.actions:
            if wanted and action.casefold().startswith(wanted):
                return action


# ---- msgrpo train


def _train_command(commands: Any) -> None:
    from msgrpo_hub.training.config import PRESETS, TrainConfig

    parser = commands.add_parser("train", help="train a LoRA adapter with MS-GRPO")
    parser.add_argument("--preset", help=f"one of {', '.join(PRESETS)}")
    parser.add_argument("--config", type=Path, help="a TOML file, such as the config.toml of another run")
    parser.add_argument("--output-dir", type=Path, required=True, help="the folder of the run")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the output folder, or start it")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    add_fields(parser, TrainConfig)
    parser.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> None:
    config = train_config(options)
    _quiet_loading(config.model)
    from msgrpo_hub.training.run import train
    from msgrpo_hub.training.summary import table

    summary = train(config, options.output_dir, resume=options.resume)
    if not summary:
        return
    if options.json:
        print(json.dumps(summary, indent=2))
        return
    folder = options.output_dir
    if "players" in summary:
        print(table(summary))
    print(f"{summary['seconds_acting']:.0f} s acting, {summary['seconds_training']:.0f} s training", end="")
    print(f", {summary['seconds']:.0f} s in all with the evaluation\n")
    print(f"The adapter is in {folder}/adapter, curves in {folder}/curves.png, a replay in {folder}/replay.svg")
    print(
        f"Next: msgrpo play {config.game} --player {folder}/adapter --seed {summary.get('replayed_test_episode', 0)}\n"
        f"      msgrpo train --config {folder}/config.toml --seed {config.seed + 1} --output-dir {folder}-{config.seed + 1}",
        file=sys.stderr,
    )


def train_config(options: argparse.Namespace) -> Any:
    """Preset or file (or, with --resume, the run's own configuration), then the flags over it."""
    from dataclasses import asdict, fields

    from msgrpo_hub.training.config import TrainConfig, from_values, load_config, preset

    own = options.output_dir / "config.toml"
    if options.preset and options.config:
        raise UserError("--preset and --config are both given: expected one of them")
    if options.preset:
        base = preset(options.preset)
    elif options.config:
        base = load_config(options.config)
    else:
        base = load_config(own) if options.resume and own.exists() else TrainConfig()
    flags = {field.name: getattr(options, field.name) for field in fields(TrainConfig) if hasattr(options, field.name)}
    return from_values(asdict(base) | flags, "the flags")


def _quiet_loading(player: str) -> None:
    """Switches off transformers' progress bars for local loading; downloads keep theirs."""
    if player in SCRIPTED:
        return
    from transformers.utils import logging

    logging.disable_progress_bar()
