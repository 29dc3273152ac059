"""An estimate agrees with what is then played, plays nothing itself, and stores nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.agent.prompt_formats import THINK_ACTION, find_format
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.estimate import Estimate, Price, estimate, estimate_table
from msgrpo_hub.evaluation.runner import evaluate
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.games import make_game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.sample_play import scripted_prompts
from msgrpo_hub.players.settings import PlayerSettings
from tests.evaluation.played import LAKE, MIXED, SHORT, SLIPPERY, contents

SERVED = "endpoint:http://127.0.0.1:9/v1#m"
"""A server that nobody runs: a request to it would fail."""
PLAYING = PlayerSettings(max_new_tokens=8)
EIGHT = replace(LAKE, episodes=8)
"""As many episodes as an estimate plays by script."""


def seeds() -> list[int]:
    return EIGHT.seeds(SLIPPERY)


def estimated(name: str, folder: Path, suite: Suite = MIXED, settings: PlayerSettings = PLAYING, **options: Any) -> Estimate:
    return estimate(name, suite, folder, settings, 50, **{"seconds": 0.05, **options})


def test_episodes_that_are_stored_are_not_counted_and_nothing_is_changed(tmp_path: Path) -> None:
    assert [row.episodes for row in estimated("random", tmp_path).tasks] == [9, 9, 9]
    assert not list(tmp_path.iterdir())
    evaluate("random", replace(MIXED, tasks=(SHORT,)), tmp_path)
    assert [row.episodes for row in estimated("random", tmp_path, replace(MIXED, tasks=(SHORT,))).tasks] == [0]
    assert [row.seconds for row in estimated("random", tmp_path, replace(MIXED, tasks=(SHORT,))).tasks] == [0]


def test_a_log_that_is_just_being_written_is_read_and_not_repaired(tmp_path: Path) -> None:
    [result] = evaluate("random", LAKE, tmp_path)
    (result.folder / "results.json").unlink()
    line = json.dumps({"index": 3, "seconds": 0.0, "episode": {}})
    (result.folder / "episodes.jsonl").write_text(f"{line}\n{line[:20]}")
    before = contents(tmp_path)
    assert [row.episodes for row in estimated("random", tmp_path, LAKE).tasks] == [LAKE.episodes - 1]
    assert contents(tmp_path) == before


def test_calls_are_the_turns_of_random_safe_play(tmp_path: Path) -> None:
    [row] = estimated("random", tmp_path, EIGHT).tasks
    [played] = evaluate("random-safe", EIGHT, tmp_path)
    assert row.calls == sum(len(episode.steps) for episode in played.episodes)
    assert (row.prompt_tokens, row.reply_tokens, row.dollars) == (None, None, None)
    assert row.seconds is not None
    assert 0 < row.seconds < 5


def test_a_server_is_not_asked_and_its_price_follows_from_tokens_and_rate(tmp_path: Path) -> None:
    price = Price(tokens_in=2.0, tokens_out=10.0)
    settings = PlayerSettings(max_new_tokens=100, concurrency=3)
    result = estimated(SERVED, tmp_path, EIGHT, settings, price=price)
    assert result.calls_at_once == 3
    for row in result.tasks:
        assert row.reply_tokens == pytest.approx(100 * row.calls / row.episodes)
        assert row.prompt_tokens is not None
        assert row.dollars == pytest.approx((row.episodes * row.prompt_tokens * 2 + row.calls * 100 * 10) / 1e6)
        assert row.seconds is None
    assert all(row.dollars is None for row in estimated(SERVED, tmp_path).tasks)


def test_past_replies_are_counted_at_the_length_that_replies_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two_turns.py").write_text(
        "from msgrpo_hub.agent.prompt_formats import TaggedFormat\nTWO = TaggedFormat(name='two-turns', history=2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    short, long = (
        estimated(SERVED, tmp_path, EIGHT, PlayerSettings(max_new_tokens=n, prompt_format="two_turns:TWO")).tasks[0]
        for n in (10, 110)
    )
    prompts = scripted_prompts(make_game(SLIPPERY), find_format("two_turns:TWO", may_import=True), "random-safe", seeds())
    past = sum(role == "assistant" for prompt in prompts for role, _ in prompt.contents)
    assert past > len(prompts)
    assert long.prompt_tokens == pytest.approx((short.prompt_tokens or 0) + 100 * past / 8)


def test_tokens_of_a_model_are_those_of_its_own_tokenizer(tiny_model: Path, tmp_path: Path) -> None:
    result = estimated(str(tiny_model), tmp_path, EIGHT)
    prompts = scripted_prompts(make_game(SLIPPERY), THINK_ACTION, "random-safe", seeds())
    agent = LanguageModel.from_pretrained(str(tiny_model))
    [row] = result.tasks
    assert row.prompt_tokens == pytest.approx(sum(map(len, agent.encode(prompts))) / 8)
    assert row.reply_tokens is not None
    assert 0 < row.reply_tokens * row.episodes <= 8 * row.calls
    assert row.seconds
    assert not list(tmp_path.iterdir())


def test_a_model_larger_than_the_memory_is_refused_before_it_is_loaded(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(file.stat().st_size for file in tiny_model.glob("*.safetensors"))
    monkeypatch.setattr("msgrpo_hub.models.devices.free_memory", lambda _: size + 1)
    assert estimated(str(tiny_model), tmp_path, EIGHT).tasks
    monkeypatch.setattr("msgrpo_hub.models.devices.free_memory", lambda _: size - 1)
    monkeypatch.setattr(LanguageModel, "from_pretrained", None)
    with pytest.raises(UserError, match=r"need .* GB of memory, and .* GB are free: expected a smaller model, --dtype bfloat16"):
        estimated(str(tiny_model), tmp_path, EIGHT)
    with pytest.raises(TypeError):  # half of the memory: it is loaded
        estimated(str(tiny_model), tmp_path, EIGHT, replace(PLAYING, dtype="bfloat16"))


def test_the_table_shows_the_sums_and_leaves_out_what_is_not_known(tmp_path: Path) -> None:
    priced = estimated(SERVED, tmp_path, price=Price(tokens_in=1000.0))
    text = estimate_table(priced)
    total = sum(row.dollars or 0 for row in priced.tasks)
    assert f"${total:,.2f}" in text
    assert " time" not in text.splitlines()[1]
    assert text.splitlines()[-len(priced.assumptions) :] == list(priced.assumptions)
    scripted = estimate_table(estimated("random", tmp_path))
    assert "tokens" not in scripted.splitlines()[1]
    assert "time" in scripted.splitlines()[1]
