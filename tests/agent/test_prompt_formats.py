"""One contract for every prompt format on every game, and the text of think-action."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.agent import Policy, Prompt, PromptFormat, ScriptedPolicy, build_prompt
from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, THINK_ACTION, TaggedFormat, find_format, format_hash
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import GAMES, Game, make_game, stream
from msgrpo_hub.players.scripted import choose_random_safe
from msgrpo_hub.rollout import play_episodes

GOLDEN = json.loads((Path(__file__).parent / "golden_prompts.json").read_text())
"""Game → the messages of its first state with seed 0."""

LAKE = make_game("FrozenLake-NotSlippery-v1")
REMEMBERING = TaggedFormat(name="think-action-3", history=3)

every_game = pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)
every_format = pytest.mark.parametrize("prompt_format", [*PROMPT_FORMATS.values(), REMEMBERING], ids=lambda one: str(one.name))


class Recorded:
    """A scripted player that keeps its prompts and thinks aloud, so that no two of its replies are equal."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.prompts = policy, list[Prompt]()

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        self.prompts += prompts
        replies = self.policy.complete(prompts, rngs)
        return [Completion(text=f"<think>{len(self.prompts)}</think>{reply.text}") for reply in replies]


@every_game
def test_a_prompt_has_instructions_actions_and_rules_then_the_observation_and_the_request(game: Game) -> None:
    state = game.initial_state(stream(0, "initial_state"))
    prompt = build_prompt(game, state)
    head = ["[Instructions]", game.instructions, "[Available Actions]", "Left, Down, Right, Up", "[Rules]", *game.rules]
    assert prompt.system.split("\n") == head
    assert prompt.user.startswith(f"Current Observation:\n{game.observe(state)}\nAnswer with one of these lines")


@pytest.mark.parametrize("game", [game for game in GAMES.values() if not getattr(game, "exactly", False)], ids=lambda g: g.id)
def test_states_that_look_alike_give_equal_prompts_so_that_one_reply_can_serve_both(game: Game) -> None:
    state = game.initial_state(stream(0, "initial_state"))
    later = replace(state, turn=3)
    assert state != later
    assert build_prompt(game, state) == build_prompt(game, later)
    assert hash(build_prompt(game, state)) == hash(build_prompt(game, later))


@every_format
@every_game
def test_the_rules_are_a_common_beginning_of_all_prompts_of_a_game(prompt_format: PromptFormat, game: Game) -> None:
    player = Recorded(ScriptedPolicy(choose_random_safe))
    play_episodes(game, player, [(seed, 0) for seed in range(3)], prompt_format=prompt_format)
    assert len(player.prompts) > 6
    [(role, rules)] = {prompt.contents[0] for prompt in player.prompts}
    assert role == "system"
    assert all(rule in rules for rule in game.rules)


@every_format
@every_game
def test_a_prompt_lists_the_possible_replies_and_the_format_reads_them(prompt_format: PromptFormat, game: Game) -> None:
    """One line for each action, with the words for its thoughts and plan."""
    state = game.initial_state(stream(0, "initial_state"))
    asked, *replies = build_prompt(game, state, prompt_format).user.splitlines()[-1 - len(game.actions) :]
    assert prompt_format.parse(asked, game.actions) is None
    assert [prompt_format.parse(reply, game.actions) for reply in replies] == list(game.actions)
    thoughts = {"action-only": None, "think-plan-action": "your thought\nyour plan"}
    assert {prompt_format.thought(reply) for reply in replies} == {thoughts.get(prompt_format.name, "your thought")}


def test_history_is_the_last_turns_the_oldest_first() -> None:
    game, player = make_game("Snake-Solo-v1"), Recorded(ScriptedPolicy(choose_random_safe))
    [episode] = play_episodes(game, player, [(1, 0)], prompt_format=REMEMBERING)
    assert len(episode.steps) > 5
    for turn, prompt in enumerate(player.prompts):
        past = episode.steps[max(0, turn - 3) : turn]
        assert [text for role, text in prompt.contents if role == "assistant"] == [step.completion.text for step in past]
        seen = [text for role, text in prompt.contents if role == "user"]
        assert len(seen) == len(past) + 1
        assert all(step.observation in text for step, text in zip([*past, episode.steps[turn]], seen, strict=True))


OWN = """
from msgrpo_hub.agent import PromptFormat
from msgrpo_hub.agent.prompt_formats import conversation, system_text


class Terse(PromptFormat):
    name = "terse"

    def render(self, game, observation, history=()):
        return conversation(system_text(game), history, observation, "One word:")

    def reply(self, action):
        return action

    def parse(self, text, actions):
        return text if text in actions else None


class Impostor(Terse):
    name = "json"


class Mute(PromptFormat):
    name = "mute"
    render = Terse.render


HALF = object()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module `my_formats` that can be imported."""
    (tmp_path / "my_formats.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_formats", None)


@pytest.mark.usefixtures("own")
def test_an_own_format_plays() -> None:
    terse = find_format("my_formats:Terse", may_import=True)
    [episode] = play_episodes(LAKE, ScriptedPolicy(choose_random_safe), [(0, 0)], prompt_format=terse)
    assert [step.completion.text for step in episode.steps] == [step.action for step in episode.steps]
    assert (terse.history, terse.thought("Left")) == (0, None)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Impostor", "has the name of a built-in format, 'json'"),
        ("HALF", "has no name: expected a subclass"),
        ("Mute", "has no reply: expected a subclass"),
    ],
)
def test_a_format_that_cannot_be_used_is_refused_in_one_line(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        find_format(f"my_formats:{name}", may_import=True)


@pytest.mark.usefixtures("own")
def test_a_stored_name_never_imports() -> None:
    with pytest.raises(UserError, match="would import code"):
        find_format("my_formats:Terse")
    assert "my_formats" not in sys.modules
    with pytest.raises(UserError, match="did you mean 'think-action'"):
        find_format("think-actoin")


def test_every_format_has_a_hash_of_its_own_and_a_change_is_another() -> None:
    changed = [replace(THINK_ACTION, request="Act!"), replace(THINK_ACTION, history=1), replace(THINK_ACTION, parts=("plan",))]
    formats = [*PROMPT_FORMATS.values(), REMEMBERING, *changed]
    assert len({format_hash(one) for one in formats}) == len(formats)
    assert format_hash(replace(THINK_ACTION, name="other")) == format_hash(THINK_ACTION)  # the name is stored beside it


@pytest.mark.parametrize("game_id", GOLDEN)
def test_think_action_has_these_words(game_id: str) -> None:
    game = make_game(game_id)
    state = game.initial_state(stream(0, "initial_state"))
    assert build_prompt(game, state).messages == GOLDEN[game_id]
    assert [message["role"] for message in GOLDEN[game_id]] == ["system", "user"]
    assert THINK_ACTION.reply("Left") == "<action>Left</action>"
