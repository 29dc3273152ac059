"""The Watch tab, and replays as plain data for the page and for programs. Needs neither gradio nor torch.

A replay is one game, one seed and one or two players: every board, prompt and reply, the legal actions, and their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import names
import numpy as np
import players

from msgrpo_hub.agent import THINK_ACTION, Prompt, PromptFormat
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.games import Game, episode_seed, make_game
from msgrpo_hub.rendering.replay import episode_data, game_data
from msgrpo_hub.rollout import play_episodes

Data = dict[str, Any]

LAKE, ADAPTER, BASE = "FrozenLake-NotSlippery-v1", "lake", "pocket"


def watch(game: str, seed: int, player: str) -> dict[str, Any]:
    """Plays one episode. Returns its boards, prompts, replies, actions, legal and optimal actions, rewards and regrets.

    Args:
        game: id of a game, such as FrozenLake-NotSlippery-v1 or Snake-Solo-v1:reflected.
        seed: number of the test episode, 0 to 9999.
        player: a built-in player (random, random-safe, greedy, planner, optimal, pocket, lake, lake-slippery,
            lake-trap, snake, snake-standard), or a model on the Hub: USER/NAME, USER/NAME@revision or BASE+ADAPTER.

    Returns:
        The replay; the Space's README describes its fields.
    """
    rules, number = players.game_of(game), players.number(seed)
    players.check_player(player, rules)
    replies = players.bundled("replays").get(rules.id, {}).get(player, {}).get(str(number))
    if replies is not None:
        return combine(number, [player_data(rules, player, play_replies(rules, number, replies))])
    with players.line(player).place():
        [episode] = players.play(player, rules, [episode_seed(rules.id, "test", number)])
    return combine(number, [player_data(rules, player, episode)])


def player_data(game: Game, player: str, episode: Episode) -> Data:
    """One player's episode as `episode_data` describes it, with its scores, its name, its game, and its seed as text."""
    steps, scores = judged(episode, game)
    data = episode_data(game, episode, steps, players.formats.get(player, THINK_ACTION))
    data |= {name: getattr(scores, name) for name in ("reward", "success", "regret", "value_optimal")}
    return data | {"player": player, "game": game_data(game), "seed": str(episode.seed)}


def combine(number: int, shown: Sequence[Data]) -> Data:
    """A replay of one or two players on test episode `number`; a seed has more digits than a JavaScript number holds."""
    return {"number": number, "seed": shown[0]["seed"], "players": list(shown)}


def film(found: Data, asked: Sequence[Any]) -> Data:
    """A replay as the page shows it, with readable names; it is grey when the inputs are not as `asked`."""
    shown = [{**each, "title": names.player(each["player"])} for each in found["players"]]
    game_id = shown[0]["game"]["title"].partition(":told")[0]
    caption = [f"{names.game(game_id)}, board {found['number']}", game_id]
    return {**found, "players": shown, "caption": caption, "asked": list(asked)}


def side_by_side(game: str, board: int, player: str, beside: str) -> Iterator[Data]:
    """A player on a board, to the right of another one; no other one if `beside` is empty. Raises `UserError` like `watch`.

    Yields the replay so far, again after each turn of a model. The player's model goes first.
    """
    rules, number = players.game_of(game), players.number(board)
    pair = [beside, player] if beside and beside != player else [player]
    tracks = {name: track(rules, number, players.check_player(name, rules)) for name in reversed(pair)}
    shown = {name: next(tracks[name]) for name in reversed(pair)}
    for index, turn in enumerate(({}, *({name: data} for name, of in tracks.items() for data in of))):
        shown |= turn
        yield {**film(combine(number, [shown[name] for name in pair]), (game, board, player, beside)), "grows": index > 0}


def track(game: Game, number: int, player: str) -> Iterator[Data]:
    """One player's episode: of a model the start and then each turn as it comes, of others at once."""
    stored = str(number) in players.bundled("replays").get(game.id, {}).get(player, {})
    if stored or player in players.SCRIPTED:
        yield watch(game.id, number, player)["players"][0]
        return
    yield so_far(game, number, player, [])
    with players.line(player).place():
        for replies in players.replies(player, game, episode_seed(game.id, "test", number)):
            yield so_far(game, number, player, replies)


def so_far(game: Game, number: int, player: str, replies: Sequence[Completion]) -> Data:
    """`player_data` of an episode of which these replies are there; `waits` says so, unless they are all."""
    texts = [{"text": reply.text, "finish": reply.finish} for reply in replies]
    rest = [""] * (game.horizon - len(texts))  # no action, and left out of the data
    data = player_data(game, player, play_replies(game, number, [*texts, *rest], players.formats.get(player)))
    if len(texts) < len(data["steps"]):
        cut = {"states": data["states"][: len(texts) + 1], "steps": data["steps"][: len(texts)]}
        data |= cut | {"waits": f"Waiting for the reply of turn {len(texts) + 1} …"}
    return data


# ---- the bundle


@dataclass(frozen=True)
class StoredReplies:
    """A policy that gives stored replies in their order. After the last one it gives an error, which ends the episode."""

    replies: Sequence[str | Mapping[str, str]]

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        turn = prompts[0].state.turn
        if turn >= len(self.replies):
            return [Completion(text="", error="no more replies")]
        reply = self.replies[turn]
        return [Completion(text=reply) if isinstance(reply, str) else Completion(**reply)]


def play_replies(
    game: Game, number: int, replies: Sequence[str | Mapping[str, str]], prompt_format: PromptFormat | None = None
) -> Episode:
    """The episode of stored replies. Each is a text, or `{"text": …, "finish": "length"}` if it was truncated."""
    key = (episode_seed(game.id, "test", number), 0)
    [episode] = play_episodes(game, StoredReplies(replies), [key], prompt_format=prompt_format)
    return episode


def _first_board() -> int:
    """The bundled board that shows the most: the adapter reaches the goal, and the base falls into a hole as late as possible."""
    game, of = make_game(LAKE), players.bundled("replays")[LAKE]
    both = [(number, play_replies(game, int(number), of[BASE][number])) for number in of[ADAPTER] if number in of[BASE]]
    solved = [(n, base) for n, base in both if play_replies(game, int(n), of[ADAPTER][n]).success]
    falls = [(n, base) for n, base in solved if base.terminated and not base.success]
    return int(max(falls or solved, key=lambda each: len(each[1].steps))[0])


FIRST = (LAKE, _first_board(), ADAPTER)


def opens_with() -> tuple[str, int, str, str]:
    """Game, board, player and the one beside it that the Watch tab opens with."""
    if run := players.own_run():
        player, beside = run.sources
        return run.game, 0, player, beside
    return FIRST[0], FIRST[1], players.shown_first(), BASE
