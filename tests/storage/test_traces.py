"""Traces: equal to golden files that follow the formats' descriptions, and a sample that order cannot change."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, system_text
from msgrpo_hub.games import make_game
from msgrpo_hub.storage.tables import episode_id, prompts_of
from msgrpo_hub.storage.traces import TRACE, TraceSample, conversation, pi_session, training_trace
from tests.storage.traced import EVALUATED, LAKE, ORIGIN, of_a_model, scripted, scripted_episode

GOLDEN = Path(__file__).parent / "golden"


def test_a_session_of_pi_is_that_of_the_golden_file() -> None:
    assert pi_session(of_a_model(), ORIGIN) == (GOLDEN / "pi_session.jsonl").read_text(encoding="utf-8")


def test_a_training_trace_of_openenv_is_that_of_the_golden_file() -> None:
    assert training_trace(of_a_model(), ORIGIN) == json.loads((GOLDEN / "training_trace.json").read_text(encoding="utf-8"))


def test_a_session_is_one_chain_from_its_first_message_to_its_last() -> None:
    head, *entries = map(json.loads, pi_session(of_a_model(), ORIGIN).splitlines())
    assert {"type": "session", "version": 3, "id": episode_id(of_a_model(), ORIGIN)}.items() <= head.items()
    assert entries[0]["parentId"] is None
    assert [entry["parentId"] for entry in entries[1:]] == [entry["id"] for entry in entries[:-1]]
    assert all(before["timestamp"] < after["timestamp"] for before, after in pairwise(entries))
    assert [entry["message"]["role"] for entry in entries[1:]] == ["user", "assistant", "user", "assistant"]


def test_a_session_shows_the_rules_once_and_every_reply_verbatim() -> None:
    session, rollout = pi_session(of_a_model(), ORIGIN), of_a_model()
    texts = [line["message"]["content"][0]["text"] for line in map(json.loads, session.splitlines()) if line["type"] == "message"]
    assert texts[0].startswith(system_text(make_game(LAKE)))
    assert sum("[Rules]" in text for text in texts) == 1
    assert texts[1] == rollout.episode.steps[0].completion.text
    assert texts[3] == "Ünsure ?", "half a character is no text: it is replaced, as in the tables"


@pytest.mark.parametrize("name", PROMPT_FORMATS)
def test_a_conversation_has_each_turn_once_in_every_format(name: str) -> None:
    episode = scripted_episode(3)
    told = conversation(episode, PROMPT_FORMATS[name])
    assert [message["role"] for message in told] == ["system", *["user", "assistant"] * 3]
    assert told[1::2] == [prompt[-1] for prompt in prompts_of(episode, PROMPT_FORMATS[name])]


def test_a_conversation_in_a_format_that_is_not_built_in_has_the_observations() -> None:
    episode = scripted_episode()
    assert [message["content"] for message in conversation(episode, None)[::2]] == [step.observation for step in episode.steps]


def test_only_replies_are_learned_from_and_no_log_probability_is_above_zero() -> None:
    trace = training_trace(of_a_model(), ORIGIN)
    assert trace
    for turn in trace["turns"]:
        read, written = len(turn["prompt_token_ids"]), len(turn["completion_token_ids"])
        assert turn["loss_mask"] == [0] * read + [1] * written
        assert len(turn["per_token_logps"]) == written
        assert max(turn["per_token_logps"]) <= 0
    assert len({turn["node_id"] for turn in trace["turns"]}) == len(trace["turns"])


def test_a_player_without_tokens_has_a_session_and_no_training_trace(tmp_path: Path) -> None:
    assert training_trace(scripted(), EVALUATED) is None
    sample = TraceSample(size=3)
    sample.add(EVALUATED, [scripted()])
    assert sample.write(tmp_path) == (1, 0)
    assert [path.parent.name for path in tmp_path.rglob("*.json*")] == ["traces"]


def test_a_sample_has_the_size_asked_for_and_does_not_depend_on_order(tmp_path: Path) -> None:
    rollouts = [of_a_model(update=update, member=member) for update in range(1, 6) for member in range(4)]
    written = []
    for number, order in enumerate((rollouts, rollouts[::-1])):
        sample = TraceSample(size=7)
        for start in range(0, len(order), 3):
            sample.add(ORIGIN, order[start : start + 3])
        (tmp_path / str(number)).mkdir()
        assert sample.write(tmp_path / str(number)) == (7, 7)
        names = [path.relative_to(tmp_path / str(number)).as_posix() for path in (tmp_path / str(number)).rglob("*.json*")]
        assert all(TRACE.fullmatch(name) for name in names)
        written.append(sorted(names))
    assert written[0] == written[1]
    assert len(written[0]) == 14
