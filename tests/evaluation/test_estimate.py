"""An estimate agrees with the evaluation, starts none, and stores nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent.policy import Prompt, ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import THINK_ACTION, PromptFormat
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import estimate as module
from msgrpo_hub.evaluation.estimate import estimate, estimate_table, probe
from msgrpo_hub.evaluation.runner import evaluate
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.games import make_game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.players.sample_play import scripted_prompts
from msgrpo_hub.players.settings import PlayerSettings
from tests.evaluation.played import FIRM, LAKE, MIXED, SHORT, SLIPPERY, contents

SERVED = "endpoint:http://127.0.0.1:9/v1#m"
"""No server runs there: a request would fail."""
PLAYING = PlayerSettings(max_new_tokens=8)
EIGHT = replace(LAKE, episodes=8)
"""As many episodes as an estimate plays by script."""


def prompts_of(prompt_format: PromptFormat) -> list[Prompt]:
    return scripted_prompts(make_game(SLIPPERY), prompt_format, "random-safe", EIGHT.seeds(SLIPPERY))


def estimated(
    name: str, folder: Path, suite: Suite = MIXED, settings: PlayerSettings = PLAYING, **options: Any
) -> dict[str, Any]:
    return estimate(name, suite, folder, settings, 50, **{"seconds": 0.05, **options})


def test_stored_episodes_are_not_counted_and_no_file_is_changed(tmp_path: Path) -> None:
    assert [row["episodes"] for row in estimated("random", tmp_path)["tasks"]] == [9, 9, 9]
    assert not list(tmp_path.iterdir())
    evaluate("random", replace(MIXED, tasks=(SHORT,)), tmp_path)
    [row] = estimated("random", tmp_path, replace(MIXED, tasks=(SHORT,)))["tasks"]
    assert (row["episodes"], row["seconds"]) == (0, 0)
    [result] = evaluate("random", LAKE, tmp_path / "log")
    (result.folder / "results.json").unlink()
    line = json.dumps({"index": 3, "seconds": 0.0, "episode": {}})
    (result.folder / "episodes.jsonl").write_text(f"{line}\n{line[:20]}")  # another process is writing it
    before = contents(tmp_path)
    assert [row["episodes"] for row in estimated("random", tmp_path / "log", LAKE)["tasks"]] == [LAKE.episodes - 1]
    assert contents(tmp_path) == before


def test_calls_are_the_turns_of_random_safe_play(tmp_path: Path) -> None:
    [row] = estimated("random", tmp_path, EIGHT)["tasks"]
    [played] = evaluate("random-safe", EIGHT, tmp_path)
    assert row["calls"] == sum(len(episode.steps) for episode in played.episodes)
    assert (row["prompt_tokens"], row["reply_tokens"], row["dollars"]) == (None, None, None)
    assert 0 < row["seconds"] < 5


def test_a_server_gets_no_request_and_its_price_follows_from_tokens_and_rate(tmp_path: Path) -> None:
    settings = PlayerSettings(max_new_tokens=100, concurrency=3)
    result = estimated(SERVED, tmp_path, EIGHT, settings, price=(2.0, 10.0))
    assert result["calls_at_once"] == 3
    assert estimated(SERVED, tmp_path, EIGHT, replace(settings, concurrency=20))["calls_at_once"] == 8  # as many as episodes
    [row] = result["tasks"]
    assert row["reply_tokens"] == pytest.approx(100 * row["calls"] / row["episodes"])
    assert row["dollars"] == pytest.approx((row["episodes"] * row["prompt_tokens"] * 2 + row["calls"] * 100 * 10) / 1e6) != 0
    assert row["seconds"] is None
    assert all(row["dollars"] is None for row in estimated(SERVED, tmp_path)["tasks"])


def test_tokens_of_a_model_are_counted_by_its_own_tokenizer(tiny_model: Path, tmp_path: Path) -> None:
    [row] = estimated(str(tiny_model), tmp_path, EIGHT)["tasks"]
    agent = LanguageModel.from_pretrained(str(tiny_model))
    assert row["prompt_tokens"] == pytest.approx(sum(map(len, agent.encode(prompts_of(THINK_ACTION)))) / 8)
    assert 0 < row["reply_tokens"] * row["episodes"] <= 8 * row["calls"]
    assert row["seconds"]
    assert not list(tmp_path.iterdir())


def test_a_model_larger_than_the_memory_is_refused_before_it_is_loaded(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(file.stat().st_size for file in tiny_model.glob("*.safetensors"))
    monkeypatch.setattr("msgrpo_hub.models.devices.free_memory", lambda _: size + 1)
    assert estimated(str(tiny_model), tmp_path, EIGHT)["tasks"]
    monkeypatch.setattr("msgrpo_hub.models.devices.free_memory", lambda _: size - 1)
    monkeypatch.setattr(LanguageModel, "from_pretrained", None)
    with pytest.raises(UserError, match=r"need .* GB of memory, and .* GB are free: expected a smaller model, --dtype bfloat16"):
        estimated(str(tiny_model), tmp_path, EIGHT)
    with pytest.raises(TypeError):  # half of the memory: it is loaded
        estimated(str(tiny_model), tmp_path, EIGHT, replace(PLAYING, dtype="bfloat16"))


def test_the_table_shows_the_sums_and_leaves_out_unknown_columns(tmp_path: Path) -> None:
    priced = estimated(SERVED, tmp_path, price=(1000.0, 0.0))
    lines = estimate_table(priced).splitlines()
    assert lines[-len(priced["assumptions"]) - 1].endswith(f"${sum(row['dollars'] or 0 for row in priced['tasks']):,.2f}")
    assert " time" not in lines[1]
    assert lines[-len(priced["assumptions"]) :] == priced["assumptions"]
    head = estimate_table(estimated("random", tmp_path)).splitlines()[1]
    assert ("tokens" in head, "time" in head) == (False, True)


@dataclass
class Model:
    """Plays as a scripted player, or says nothing, and takes a second per reply."""

    player: str = ""
    now: float = 0.0
    turns: list[int] = field(default_factory=list)
    """Replies of each turn."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        self.now += len(prompts)
        self.turns.append(len(prompts))
        if self.player:
            return ScriptedPolicy(SCRIPTED[self.player]).complete(prompts, rngs)
        return [Completion(text="", usage=(100, 7)) for _ in prompts]


def probed(
    model: Model, monkeypatch: pytest.MonkeyPatch, game: str = FIRM, deadline: float = 0.0, episodes: int = 100
) -> tuple[float, float | None]:
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: model.now))
    return probe(model, make_game(game), [(seed, 0) for seed in range(episodes)], 50, THINK_ACTION, deadline)


def test_a_slow_model_plays_two_turns_of_a_whole_batch_and_a_fast_one_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = Model(), Model("random")
    seconds, tokens = probed(slow, monkeypatch)
    assert slow.turns == [50, 50]
    assert seconds == pytest.approx(100 * make_game(FIRM).horizon)  # without moves every episode has all its turns
    assert tokens == 7
    assert probed(fast, monkeypatch, deadline=1e9) == (2 * sum(fast.turns), None)
    assert probed(Model(), monkeypatch, episodes=0) == (0.0, None)


@pytest.mark.parametrize("game", [FIRM, "Snake-Solo-v1"])
@pytest.mark.parametrize("player", ["random", "random-safe", "greedy"])
def test_two_turns_give_the_time_of_all_within_a_factor_of_one_and_a_half(
    player: str, game: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, _ = probed(Model(player), monkeypatch, game)
    true, _ = probed(Model(player), monkeypatch, game, deadline=1e9)
    assert true / 1.5 < told < true * 1.5
