"""`msgrpo play`: one episode in the terminal, played by a player or by the user."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from msgrpo_hub.agent.policy import Policy, ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import system_text
from msgrpo_hub.cli.flags import add_fields, given_fields, read_as
from msgrpo_hub.cli.output import add_json, print_json, print_next, print_text
from msgrpo_hub.cli.players import PLAYERS, quiet_loading
from msgrpo_hub.downloads.names import without_secrets
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import Number
from msgrpo_hub.games import Game, episode_seed, make_game, render_text
from msgrpo_hub.players.registry import make_player
from msgrpo_hub.players.sample_play import prompts_of
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rollout import play_episodes, replayed_states


def add_play(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("game", metavar="GAME", help="id of a game, as `msgrpo games` lists them, or ID:VARIANT")
    parser.add_argument("--player", default="random", help=f"human (you type the actions), or one of {PLAYERS}. Default: random")
    parser.add_argument("--seed", type=read_as(Number), metavar="N", default=0, help="number of the test episode. Default: 0")
    add_json(parser, "print the episode as JSON instead of drawing it")
    add_fields(parser, PlayerSettings, "players that are models")
    parser.set_defaults(run=_play)


def _play(options: argparse.Namespace) -> None:
    game = make_game(options.game)
    settings = PlayerSettings(**given_fields(options, PlayerSettings))
    episode_key = (episode_seed(game.id, "test", options.seed), 0)
    [episode] = play_episodes(game, _policy(options, settings), [episode_key], prompt_format=settings.chosen_format)
    if episode.error:
        player, turn = without_secrets(options.player), len(episode.steps) + 1
        raise UserError(f"{player!r} gave no reply on turn {turn} ({episode.error}): try again later")
    if options.json:
        print_json(_episode_json(episode))
    else:
        _print_episode(game, episode)
    other = "pocket" if options.player == "human" else "human"
    print_next(f"msgrpo play {game.id} --player {other} --seed {options.seed}")


def _policy(options: argparse.Namespace, settings: PlayerSettings) -> Policy:
    game = make_game(options.game)
    if options.player == "human":
        print(f"{system_text(game)}\n", file=sys.stderr)
        return ScriptedPolicy(choose_human)
    quiet_loading(options.player)
    return make_player(options.player, settings, prompts_of([game]))


def _print_episode(game: Game, episode: Episode) -> None:
    states = replayed_states(game, episode)
    print(f"{render_text(game, states[0])}\n")
    for turn, (step, state) in enumerate(zip(episode.steps, states[1:], strict=True), start=1):
        print_text(f"turn {turn}: {step.completion.text}")
        print(f"action {step.action or 'none (' + step.status + ')'}, reward {step.reward:g}\n{render_text(game, state)}\n")
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
