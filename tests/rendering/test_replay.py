"""Replays: from actions to states, from states to data, and from data to an SVG."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from imageio.v3 import imread

from examples import own_game
from msgrpo_hub.agent.policy import Prompt, ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import THINK_ACTION
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, VARIANTS, Game, make_game
from msgrpo_hub.games.variants import Variant
from msgrpo_hub.players.scripted import choose_greedy, choose_random, choose_random_safe
from msgrpo_hub.rendering.replay import LONGEST, episode_data, game_data, state_data
from msgrpo_hub.rendering.replay_svg import Timeline, pixels, replay_svg, write_videos
from msgrpo_hub.rollout import play_episodes, play_groups, replayed_states

LAKE = "FrozenLake-Slippery-v1"
SVG = "{http://www.w3.org/2000/svg}"


class Says:
    def __init__(self, text: str, finish: str = "stop") -> None:
        self.completion = Completion(text=text, finish=finish)  # type: ignore[arg-type]

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        return [self.completion] * len(prompts)


def play(game_id: str, policy: object = None, seed: int = 7, members: int = 1) -> list[Episode]:
    policy = policy or ScriptedPolicy(choose_random_safe)
    return list(play_groups(make_game(game_id), policy, [seed], members)[0].episodes)  # type: ignore[arg-type]


@pytest.mark.lowest
@pytest.mark.parametrize("game_id", GAMES)
def test_every_game_replays_what_was_observed(game_id: str) -> None:
    game = make_game(game_id)
    for episode in play(game_id, ScriptedPolicy(choose_random), members=5) + play(game_id, members=5):
        states = replayed_states(game, episode)
        assert len(states) == len(episode.steps) + 1
        assert [game.observe(state) for state in states[:-1]] == [step.observation for step in episode.steps]


TAMPERINGS: dict[str, Callable[[Episode], Episode]] = {
    "an action": lambda e: replace(e, steps=(replace(e.steps[0], action=None), *e.steps[1:])),
    "a lost last step": lambda e: replace(e, steps=e.steps[:-1]),
    "a lost last step and no end": lambda e: replace(e, steps=e.steps[:-1], terminated=False, truncated=False),
    "no step at all": lambda e: replace(e, steps=()),
    "a step after the end": lambda e: replace(e, steps=(*e.steps, e.steps[-1])),
    "success": lambda e: replace(e, success=not e.success),
    "the game": lambda e: replace(e, game_id="Snake-Solo-v1"),
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_a_tampered_record_is_refused(what: str) -> None:
    (episode,) = play(LAKE)
    with pytest.raises(ValueError, match=r"FrozenLake-Slippery-v1"):
        replayed_states(make_game(LAKE), TAMPERINGS[what](episode))


def test_another_member_has_other_dynamics_and_does_not_replay() -> None:
    game = make_game("Snake-Standard-v1")
    for episode in play(game.id, members=10):
        with pytest.raises(ValueError, match="another observation"):
            replayed_states(game, replace(episode, member=episode.member + 100))


@pytest.mark.parametrize("game_id", GAMES)
def test_every_game_draws_as_xml_without_script_or_outside_references(game_id: str) -> None:
    titled = [("random", play(game_id, ScriptedPolicy(choose_random))[0]), ("safe", play(game_id)[0])]
    text = replay_svg(make_game(game_id), titled)
    root = ElementTree.fromstring(text)
    defined = {element.get("id") for element in root.iter() if element.get("id")}
    used = {element.get("href") for element in root.iter(f"{SVG}use")}
    assert {reference.lstrip("#") for reference in used if reference} <= defined
    assert "<script" not in text
    assert len(text) < 120_000
    names = set(re.findall(r'class="(?:film )?(k\d+)"', text))
    assert names
    assert {name for name in names if f".{name}{{" not in text or f"@keyframes {name}{{" not in text} == set()


def test_a_piece_is_seen_in_its_states_and_without_motion_as_in_the_last() -> None:
    timeline = Timeline(6.5)  # three turns of 1.5 s, and 2 s at the end
    timeline.show([False, True, False, True])
    timeline.follow(["x:0", "x:0", "x:2"])
    jump, move = timeline.rules.values()
    hidden, visible = "{visibility:hidden}", "{visibility:visible}"
    assert jump == (
        ".k0{visibility:visible;animation:k0 6.5s step-end infinite}"
        f"@keyframes k0{{0%{hidden}23.077%{visible}46.154%{hidden}69.231%{visible}to{visible}}}"
    )
    assert move == ".k1{x:2;animation:k1 6.5s ease-in-out infinite}@keyframes k1{0%{x:0}36.923%{x:0}46.154%{x:2}to{x:2}}"


@pytest.mark.parametrize(
    ("policy", "shown", "thought"),
    [
        (Says("<think>on I go</think><action>Left</action>"), "← Left", "on I go"),
        (Says("no idea"), "unparsed", "no idea"),
        (Says("<think>well, let me see", "length"), "truncated", "well, let me see"),
    ],
)
def test_each_turn_shows_its_action_and_thought_and_the_end_the_outcome(policy: Says, shown: str, thought: str) -> None:
    (episode,) = play("FrozenLake-NotSlippery-v1", policy)
    words = " ".join(ElementTree.fromstring(replay_svg(make_game(episode.game_id), [("me", episode)])).itertext())
    assert words.count(shown) == words.count(thought) == len(episode.steps) == 8
    assert "8/8 out of turns" in words


def test_hostile_replies_and_titles_stay_text() -> None:
    hostile = "<think></text><script>alert(1)</script>\x00\ud800 & ]]> " + "x" * 500 + "</think><action>Up</action>"
    (episode,) = play("FrozenLake-NotSlippery-v1", Says(hostile))
    text = replay_svg(make_game(episode.game_id), [('"<b>&\x1b', episode)])
    assert "<script" not in text
    assert max(len(line.text or "") for line in ElementTree.fromstring(text).iter(f"{SVG}text")) <= 50


@pytest.mark.parametrize("variant", ["reflected", "rotated", "permuted-actions", "compass"])
def test_a_variant_is_drawn_as_it_is_shown(variant: str) -> None:
    game = make_game(f"Snake-Solo-v1:{variant}")
    [episode] = play(game.id, ScriptedPolicy(choose_greedy), seed=5)
    states = replayed_states(game, episode)
    heads = [re.search(r"Your head: \((\d+), (\d+)\)", game.observe(state)) for state in states]
    places = [f"translate({int(head[2]) + 0.5:g}px,{int(head[1]) + 0.5:g}px)" for head in heads if head]
    drawn = replay_svg(game, [("greedy", episode)])
    assert len(places) == len(states)
    assert all(place in drawn for place in places)
    arrow = {(0, -1): "←", (1, 0): "↓", (0, 1): "→", (-1, 0): "↑"}[game_data(game)["moves"][str(episode.steps[0].action)]]
    assert f"{arrow} {episode.steps[0].action}" in drawn


def test_other_symbols_are_drawn_as_what_they_stand_for() -> None:
    own, other = (make_game(name) for name in ("FrozenLake-NotSlippery-v1", "FrozenLake-NotSlippery-v1:other-symbols"))
    greedy = ScriptedPolicy(choose_greedy)
    one, two = (replay_svg(game, [("greedy", *play(game.id, greedy, seed=3))]) for game in (own, other))
    for drawn in (one, two):
        assert 'class="ice"' in drawn
        assert 'class="tile"' not in drawn
    assert one.count("<use") == two.count("<use")


def test_a_video_has_the_turns_of_the_animation_and_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    game, titled = make_game(LAKE), [("me", play(LAKE)[0])]
    paths, turns = [tmp_path / "replay.mp4", tmp_path / "replay.gif"], len(titled[0][1].steps)
    write_videos(paths, game, titled, THINK_ACTION)
    film, gif = (imread(path) for path in paths)
    assert (len(film), len(gif)) == (3 * turns + 7, turns + 1)
    last = pixels(replay_svg(game, titled, still=turns)).astype(int)
    assert abs(film[-1] - last).mean() < 3 < abs(film[0] - last).mean()
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UserError, match=r"pip install 'msgrpo-hub\[video\]'"):
        write_videos(paths, game, titled, THINK_ACTION)


# ---- the data


def test_a_long_reply_keeps_its_start_and_its_end() -> None:
    (episode,) = play(LAKE, Says("a" + "x" * 10_000 + "z"))
    kept = episode_data(make_game(LAKE), episode)["steps"][0]["reply"]
    assert (kept[:2], kept[-2:]) == ("ax", "xz")
    assert f"[… {10_002 - LONGEST} characters left out …]" in kept


def test_a_game_of_another_package_is_drawn_from_its_grid(corridor: str) -> None:
    game = make_game(corridor)
    assert state_data(game, own_game.State(cell=1, turn=0)) == {"pieces": {"@": [1], "D": [4]}}
    assert game_data(game)["moves"] == {}


def variants_of(game_id: str) -> list[str]:
    names = [game_id]
    for variant in VARIANTS:
        try:
            names.append(make_game(f"{game_id}:{variant}").id)
        except UserError:
            continue  # a variant that this game does not have
    return names


def drawn(game: Game, shown: dict[str, Any]) -> list[str]:
    """The grid that a drawing shows: pieces on empty ground, then those who move over it."""

    def glyph(symbol: str) -> str:
        return game.glyphs.get(symbol, symbol) if isinstance(game, Variant) else symbol

    cells = [glyph(".")] * game.rows * game.columns
    for symbol, places in shown["pieces"].items():
        for place in places:
            cells[place] = symbol
    for body, (head, rest) in reversed(list(zip(shown.get("bodies", []), ("@#", "Xx"), strict=False))):
        for place in body[1:]:
            cells[place] = glyph(rest)
        cells[body[0]] = glyph(head)
    if "walker" in shown:
        cells[shown["walker"]] = glyph("@")
    return ["".join(cells[row * game.columns : (row + 1) * game.columns]) for row in range(game.rows)]


@pytest.mark.parametrize("game_id", [variant for game_id in GAMES for variant in variants_of(game_id)])
def test_every_game_and_variant_is_drawn_as_it_was_shown_and_moves_go_where_they_point(game_id: str) -> None:
    game = make_game(game_id)
    (episode,) = play_episodes(game, ScriptedPolicy(choose_random), [(7, 0)])
    states = replayed_states(game, episode)
    shown = [state_data(game, state) for state in states]
    assert [drawn(game, state) for state in shown] == [game.grid(state) for state in states]
    for before, after, step in zip(shown, shown[1:], episode.steps, strict=False):
        if step.legal and "Slippery-v1" not in game_id.replace("NotSlippery", "") and after.get("alive", [True])[0]:
            here, there = (state["walker"] if "walker" in state else state["bodies"][0][0] for state in (before, after))
            rows, columns = game_data(game)["moves"][step.action or ""]
            assert there - here == rows * game.columns + columns
