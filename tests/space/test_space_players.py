"""Players of the Space: names, checks on the Hub before anything is loaded, and the models that stay loaded."""

from __future__ import annotations

import json
import shutil
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import players
import pytest
from replay import opens_with, side_by_side, watch

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, PromptFormat
from msgrpo_hub.downloads.fetching import resolve
from msgrpo_hub.downloads.names import adapters_path, pocket_path
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.players import PlayerSettings, make_player
from msgrpo_hub.players.scripted import choose_greedy
from msgrpo_hub.rollout import play_episodes
from tests.hub_server.client import LOADS_MODELS, put
from tests.hub_server.lanes import Loopback, loopback, loopback_server

__all__ = ["loopback", "loopback_server"]

warm = LOADS_MODELS

LAKE = "FrozenLake-NotSlippery-v1"


@pytest.mark.parametrize(
    "name",
    ["", "human", "/etc", "./x/y", "~/x", "a/b/c", "a/../b", "..", "a//b", "a b/c", "a/b\n", "a/b+", "+a/b", "a/b+c/d+e/f",
     "ａ/b", "http://x/y", "endpoint:http://x#m", "provider:x/y", "dqn:weights", "runs/lake", "a/b@",
     "a/b@../x", "x" * 201],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "lake").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        players.check_name(name)
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class AskedInJson(ScriptedPolicy):
    """Plays greedily, like an adapter that was trained with another prompt format."""

    prompt_format: PromptFormat = PROMPT_FORMATS["json"]


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is resolved or loaded: every name stands for a model that plays greedily."""
    scripted = players.make_player
    monkeypatch.setattr(players, "make_player", lambda name, *more: AskedInJson(choose_greedy) if more else scripted(name))
    monkeypatch.setattr(players, "resolve", lambda name, _largest: SimpleNamespace(pinned=name))
    for name, empty in {"_models": OrderedDict[str, Any](), "formats": dict[str, Any]()}.items():
        monkeypatch.setattr(players, name, empty)


@pytest.mark.usefixtures("no_models")
def test_two_models_of_the_hub_stay_loaded_and_the_built_in_ones_always_do() -> None:
    for name in ("pocket", "org/a", "org/b", "lake", "org/a", "org/c", "snake"):
        assert players.play(name, make_game(LAKE), [episode_seed(LAKE, "test", 0)])
    assert set(players._models) == {"pocket", "lake", "snake", "org/a", "org/c"}


@pytest.mark.usefixtures("no_models")
def test_a_replay_shows_the_prompts_that_the_model_was_asked() -> None:
    [shown] = watch(LAKE, 3, "org/asked-in-json")["players"]
    [plain] = watch(LAKE, 3, "greedy")["players"]
    assert {step["status"] for step in shown["steps"]} == {"ok"}
    assert all('{"' in step["prompt"] for step in shown["steps"])
    assert not any('{"' in step["prompt"] for step in plain["steps"])
    assert [step["move"] for step in shown["steps"]] == [step["move"] for step in plain["steps"]]


@pytest.mark.parametrize("name", players.ADAPTERS)
def test_a_built_in_adapter_replies_as_for_the_command_line_to_the_letter(name: str) -> None:
    game = make_game(LAKE)
    seeds = [episode_seed(LAKE, "test", number) for number in range(20, 26)]
    beside = make_player(name, PlayerSettings(temperature=1.0, max_new_tokens=32))
    alone = play_episodes(game, beside, [(seed, 0) for seed in seeds])
    played = players.play(name, game, seeds)
    assert [[step.completion.text for step in e.steps] for e in played] == [[s.completion.text for s in e.steps] for e in alone]


def test_a_run_of_ones_own_opens_beside_its_base_turn_by_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "runs" / "mine"
    shutil.copytree(adapters_path() / "lake", run / "adapter")
    shutil.copytree(pocket_path(), run.parent / "base")
    how = 'max_new_tokens = 32\neval_temperature = 1.0\nprompt_format = "think-action"\ndtype = "auto"\nload_in_4bit = false'
    (run / "config.toml").write_text(f'game = "{LAKE}=2,Snake-Solo-v1"\nmodel = "{run.parent / "base"}"\n{how}\n')
    for folder in (run, tmp_path):
        monkeypatch.setenv("MSGRPO_RUN", str(folder))
        players.own_run.cache_clear()
        if folder == run:
            assert opens_with() == (LAKE, 0, "runs/mine", "base")
            first, *turns, last = side_by_side(*opens_with())
    with pytest.raises(UserError, match="holds no trained adapter: expected the folder of a finished run"):
        players.own_run()
    players.own_run.cache_clear()
    assert [(len(each["states"]), each["waits"][-10:]) for each in first["players"]] == [(1, "f turn 1 …")] * 2
    assert [len(turn["players"][1]["steps"]) for turn in turns[:3]] == [1, 2, 3]  # the adapter first
    own, bundled = last["players"][1], watch(LAKE, 0, "lake")["players"][0]
    assert [step["reply"] for step in own["steps"]] == [step["reply"] for step in bundled["steps"]]
    assert not [each for each in last["players"] if "waits" in each]


def pinned(name: str, largest: int = players.LARGEST) -> str:
    """The pinned name, or the refusal; called on the owner's machine."""
    try:
        return resolve(name, largest).pinned
    except UserError as error:
        return f"refused: {error}"


LORA = {"peft_type": "LORA", "base_model_name_or_path": "/anywhere/msgrpo_hub/pocket/model"}


def adapter(**changes: Any) -> dict[str, bytes]:
    return {"adapter_config.json": json.dumps(LORA | changes).encode(), "adapter_model.safetensors": b"weights"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"pytorch_model.bin": b"x", "config.json": b"{}"}, "has no safetensors"),
        (adapter(peft_type="PROMPT_TUNING"), "is of type 'PROMPT_TUNING': expected LORA"),
        (adapter(base_model_name_or_path="/etc"), "names '/etc' as its base"),
        (adapter(base_model_name_or_path="nobody/nothing"), "'nobody/nothing', HTTP 404"),
        (adapter(padding="x" * 1_000_001), "expected at most 1,000,000"),
    ],
)
def test_what_is_no_sound_model_is_refused_before_it_is_loaded(files: dict[str, bytes], said: str, loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, files)
    assert said in loopback.owner.call(pinned, repo)
    assert not [request for request in loopback.requests() if "/resolve/" in str(request) and "safetensors" in str(request)]


def test_a_base_and_an_adapter_are_both_pinned_to_their_commits(loopback: Loopback) -> None:
    base, repo, other = (loopback.repository() for _ in range(3))
    first = loopback.owner.call(put, base, {"model.safetensors": b"weights"})
    second = loopback.owner.call(put, repo, adapter(base_model_name_or_path=base, revision=first))
    assert loopback.owner.call(pinned, repo) == f"{base}@{first}+{repo}@{second}"
    assert loopback.owner.call(pinned, f"{base}+{repo}") == f"{base}@{first}+{repo}@{second}"
    assert loopback.owner.call(pinned, base) == f"{base}@{first}"
    third = loopback.owner.call(put, other, adapter())
    assert loopback.owner.call(pinned, other) == f"{pocket_path()}+{other}@{third}"
    assert "0.0 GB of weights: expected at most 0 GB here" in loopback.owner.call(pinned, base, 6)


def played(name: str) -> list[str]:
    game = make_game(LAKE)
    [episode] = players.play(name, game, [episode_seed(LAKE, "test", 3)])
    return [step.completion.text for step in episode.steps]


def test_a_published_adapter_of_the_built_in_base_plays_here(loopback: Loopback) -> None:
    repo, folder = loopback.repository(), adapters_path() / "lake"
    loopback.owner.call(put, repo, {path.name: path.read_bytes() for path in folder.iterdir()})
    replies = loopback.owner.call(played, repo)
    assert replies
    assert all("<action>" in reply for reply in replies)
