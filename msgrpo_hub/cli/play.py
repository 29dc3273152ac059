"""`msgrpo games` and `msgrpo play`: the games, and one episode drawn in the terminal."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from msgrpo_hub.agent.policy import Policy, ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import system_text
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game, all_games, episode_seed, make_game, render_text
from msgrpo_hub.players.registry import SCRIPTED, entry_point, make_player
from msgrpo_hub.rollout import play_episodes, replayed_states

PLAYERS = f"{', '.join(SCRIPTED)}, pocket, a Hub id, a folder, base+adapter, dqn:FOLDER, endpoint:URL#model, provider:NAME/model"


def games_command(commands: Any) -> None:
    parser = commands.add_parser("games", help="the registered games, their ids and rules")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_games)


def _games(options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps([describe(game) for game in all_games().values()], indent=2))
        return
    for game in all_games().values():
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


def play_command(commands: Any) -> None:
    parser = commands.add_parser("play", help="one episode, drawn in the terminal")
    parser.add_argument("game", help="id of the game, as `msgrpo games` lists them")
    parser.add_argument("--player", default="random", help=f"human, {PLAYERS}; default: random")
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
        quiet_loading(options.player)
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
    print(f"{render_text(game, states[0])}\n")
    for turn, (step, state) in enumerate(zip(episode.steps, states[1:], strict=True), start=1):
        print(f"turn {turn}: {step.completion.text}")
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
    if state.turn == 0:
        print(f"{system_text(game)}\n", file=sys.stderr)
    print(render_text(game, state), file=sys.stderr)
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


def quiet_loading(player: str) -> None:
    """Switches off transformers' progress bars for local loading; downloads keep theirs."""
    if player in SCRIPTED or ":" in player or entry_point(player):
        return
    from transformers.utils import logging

    logging.disable_progress_bar()
