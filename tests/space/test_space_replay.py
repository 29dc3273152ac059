"""Replays as plain data: they agree with the rules and with the bundle."""

from __future__ import annotations

import json

import players
from replay import watch

from msgrpo_hub.games import episode_seed, make_game

LAKE, SOLO = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"


def test_a_lake_is_told_as_it_was() -> None:
    """Test episode 0 by hand: `@... / .O.O / OO.O / ...G`; the only shortest way is Right, Right, Down, Down, Down, Right."""
    [track] = watch(LAKE, 0, "optimal")["players"]
    names = track["game"]["actions"]
    assert [names[step["action"]] for step in track["steps"]] == ["Right", "Right", "Down", "Down", "Down", "Right"]
    assert [state["walker"] for state in track["states"]] == [0, 1, 2, 6, 10, 14, 15]
    assert [[names[a] for a in step["legal"]] for step in track["steps"][:2]] == [["Down", "Right"], ["Left", "Down", "Right"]]
    assert [[names[a] for a in step["best"]] for step in track["steps"][:3]] == [["Right"], ["Right"], ["Down"]]
    assert {"Left", "Up"} <= {names[a] for a in track["steps"][0]["optimal"]}  # two turns to spare: pushing a wall costs nothing
    assert track["states"][0]["pieces"] == {"O": [5, 7, 8, 9, 11], "G": [15]}
    assert (track["reward"], track["regret"], track["value_optimal"], track["ending"]) == (1.0, 0.0, 1.0, "success")
    assert track["steps"][0]["prompt"].startswith("Current Observation:\nYou: (0, 0)")
    assert track["system"].startswith("[Instructions]\nYou walk on a frozen lake.")


def test_every_bundled_replay_is_an_episode_of_the_rules() -> None:
    stored = players.bundled("replays")
    bundle = [(game_id, int(n), player) for game_id, of in stored.items() for player, by in of.items() for n in by]
    assert len(bundle) >= 60
    for asked in [*bundle, (f"{SOLO}:other-symbols", 7, "greedy"), ("Snake-Fire-v1", 3, "random")]:
        [track] = json.loads(json.dumps(watch(*asked), allow_nan=False))["players"]
        assert track["ending"]
        assert track["reward"] == sum(step["reward"] for step in track["steps"])


def test_the_bundled_adapter_still_says_what_its_replays_say() -> None:
    episodes = players.play("lake", make_game(LAKE), [episode_seed(LAKE, "test", number) for number in range(3)])
    for number, episode in enumerate(episodes):
        stored = players.bundled("replays")[LAKE]["lake"][str(number)]
        assert [step.completion.text for step in episode.steps] == stored
