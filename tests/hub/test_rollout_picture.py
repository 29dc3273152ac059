"""The replay on a rollout card: the players that differ most, on a board where they do, or one good episode."""

from __future__ import annotations

from xml.etree import ElementTree

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.hub.rollout_picture import KEPT, RolloutPicture
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage.tables import Origin, Rollout

LAKE = "FrozenLake-NotSlippery-v1"
GAME = make_game(LAKE)


def played(player: str, first: int, last: int) -> list[Rollout]:
    keys = [(episode_seed(LAKE, "test", number), 0) for number in range(first, last)]
    return [Rollout(episode=episode) for episode in play_episodes(GAME, ScriptedPolicy(SCRIPTED[player]), keys)]


def picture(**players: list[Rollout]) -> RolloutPicture:
    found = RolloutPicture()
    for name, rollouts in players.items():
        found.add(Origin(split="test", player=name, run="r"), rollouts)
    return found


def test_the_worst_and_the_best_player_are_shown_on_a_board_where_they_differ() -> None:
    found = picture(greedy=played("greedy", 0, 9), random=played("random", 0, 9), silent=played("silent", 3, 9))
    (_, one), (_, other) = found.chosen()
    assert found.names()[1] == "greedy"
    assert one.episode.seed == other.episode.seed
    assert (one.episode.reward, other.episode.reward) == (0.0, 1.0)
    told = ElementTree.fromstring(found.draw()).findtext("{http://www.w3.org/2000/svg}title") or ""
    assert told == f"{LAKE}, seed {one.episode.seed}: {found.names()[0]}, greedy"


def test_players_without_a_common_board_and_one_player_alone_show_one_good_episode() -> None:
    for found in (picture(greedy=played("greedy", 0, 9)), picture(greedy=played("greedy", 0, 9), random=played("random", 9, 18))):
        [(name, rollout)] = found.chosen()
        assert (name, rollout.episode.reward) == ("greedy", 1.0)
        assert ElementTree.fromstring(found.draw()).tag.endswith("svg")


def test_a_large_data_set_keeps_few_episodes_of_its_first_game() -> None:
    found = picture(random=played("random", 0, KEPT + 9))
    other = make_game("Snake-Solo-v1")
    snake = play_episodes(other, ScriptedPolicy(SCRIPTED["random"]), [(episode_seed(other.id, "test", 0), 0)])
    found.add(Origin(split="test", player="random", run="r"), [Rollout(episode=snake[0])])
    assert len(found.players["random"]) == KEPT
    assert {rollout.episode.game_id for rollout in found.players["random"].values()} == {LAKE}
