"""A run whose claims were forged does not verify, even with its hash, folder, tables and summary made anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result, run_hash
from msgrpo_hub.evaluation.suites import HARNESS, load_suite
from msgrpo_hub.evaluation.verify import verify
from tests.evaluation.tampering import SNAKE, copied, forged, found
from tests.identities import MODEL, batched

Config = dict[str, Any]


def to(**values: Any) -> Callable[[Config], None]:
    return lambda config: config.update(values)


# ---- the suite


def test_a_suite_of_another_size_is_found(lake: Result) -> None:
    """The first 32 episodes of a suite that has 200 are not its result."""
    assert found(forged(lake, to(suite="standard"))) == (
        "the suite standard has 200 test episodes, its configuration says 32 test episodes: give a suite of your own another name"
    )


def test_a_suite_of_another_split_or_without_the_task_is_found(played: Path, lake: Result, tmp_path: Path) -> None:
    assert "has 50 validation episodes" in found(forged(lake, to(suite="quick", episodes=50)))
    other = copied(played, tmp_path / "other", SNAKE)
    size = load_suite("standard").episodes
    assert found(forged(other, to(suite="standard", episodes=size))) == f"the suite standard has no task {SNAKE}"


def test_the_size_of_a_suite_of_ones_own_is_said_to_be_unchecked(lake: Result) -> None:
    [row] = verify(lake.folder)
    assert (row["problems"], row["unchecked"]) == ([], ["number of episodes not checked: mine is not a built-in suite"])


def test_a_suite_of_ones_own_cannot_have_the_name_of_a_built_in_suite(tmp_path: Path) -> None:
    (tmp_path / "standard.toml").write_text("episodes = 5")
    with pytest.raises(UserError, match=r"standard.toml' has the name of a built-in suite: rename the file"):
        load_suite(str(tmp_path / "standard.toml"))


# ---- the harness


@pytest.mark.parametrize("harness", [HARNESS + 1, 0, -1, True, float(HARNESS), str(HARNESS), None])
def test_another_harness_version_is_found(harness: object, lake: Result) -> None:
    said = f"it was made by version {str(harness)!r} of the harness, this is {HARNESS}"
    assert found(forged(lake, to(harness=harness))) == said


def test_another_split_and_another_game_are_found(lake: Result) -> None:
    run = forged(lake, to(split="validation"))
    assert "not those of the suite" in found(run)
    run = forged(run, to(split="train"))
    assert "another split" in found(run)
    assert "it was played on 0123, but the hash" in found(forged(run, to(split="test", task_hash="0123")))


@pytest.mark.parametrize("key", ["suite", "split", "identity", "player", "prompt_format", "prompt_format_hash"])
def test_a_configuration_that_lacks_something_is_found(key: str, lake: Result) -> None:
    config = {name: value for name, value in lake.config.items() if name != key}
    (lake.folder / "config.lock.json").write_text(json.dumps(config))
    assert f"its configuration lacks {key}" in found(
        replace(lake, folder=lake.folder.rename(lake.folder.with_name(run_hash(config))))
    )


@pytest.mark.parametrize("name", ["task", "player", "suite", "prompt_format", "prompt_format_hash", "task_hash", "identity"])
def test_a_value_of_another_type_is_found(name: str, lake: Result) -> None:
    config = lake.config | {name: [1]}
    (lake.folder / "config.lock.json").write_text(json.dumps(config))
    said = found(replace(lake, folder=lake.folder.rename(lake.folder.with_name(run_hash(config)))))
    assert said.startswith(f"its configuration has {name} = [1]: expected ")


# ---- the player


def test_a_renamed_player_is_found(lake: Result) -> None:
    told = "the player is called 'optimal', but its identity is that of another player of kind scripted"
    assert found(forged(lake, to(player="optimal"))) == told


@pytest.mark.parametrize("identity", [{}, {"kind": "scripted"}, {"kind": "model"}, {"player": "random"}, {"kind": ["scripted"]}])
def test_an_empty_or_incomplete_identity_is_found(identity: object, lake: Result) -> None:
    assert found(forged(lake, to(identity=identity))).startswith("its identity ")


def test_a_model_without_its_batch_size_is_found(lake: Result) -> None:
    """A batch decides how replies are rounded, and so which are drawn."""
    run = forged(lake, to(player="org/model", identity=batched(MODEL)))
    assert found(run) == ""
    assert found(forged(run, to(identity=MODEL))) == "its identity is incomplete: language model without a valid batch_size"


# ---- episodes


def test_a_dropped_worst_episode_is_found(lake: Result) -> None:
    """Neither a run that says what is missing nor one that counts an episode less passes."""
    worst = min(range(31), key=lambda index: lake.scores[index].luck_adjusted or 0.0)
    missing = forged(lake, to(), worst)
    assert found(missing) == "it is not complete: 1 of 32 episodes are missing, play it again"
    assert found(forged(missing, to(episodes=31))) == "its episodes are not those of the suite, each once and in order"
