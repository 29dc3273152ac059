"""The prompt format is a part of a run: two formats are two runs that compare."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, format_hash
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import compare, evaluate
from msgrpo_hub.evaluation.results import Result, load_result, player_names, run_hash
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.untrusted import checked_run
from msgrpo_hub.evaluation.verify import problems, verify
from msgrpo_hub.players import PlayerSettings

LAKE = Suite(name="mine", tasks=("FrozenLake-NotSlippery-v1",), episodes=40)

OWN = """
from msgrpo_hub.agent.prompt_formats import TaggedFormat

class Shouted(TaggedFormat):
    def __init__(self):
        super().__init__(name="shouted", request="ANSWER!")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "shouted_format.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("shouted_format", None)


def played(folder: Path, prompt_format: str = "", suite: Suite = LAKE) -> Result:
    [result] = evaluate("greedy", suite, folder, settings=PlayerSettings(prompt_format=prompt_format))
    return result


def test_two_formats_give_two_runs_that_compare(tmp_path: Path) -> None:
    first, second = played(tmp_path / "a"), played(tmp_path / "b", "json")
    assert first.config["task_hash"] == second.config["task_hash"]
    assert run_hash(first.config) != run_hash(second.config)
    assert [result.prompt_format for result in (first, second)] == ["think-action", "json"]
    assert second.episodes[0].steps[0].completion.text == f'{{"action": "{second.episodes[0].steps[0].action}"}}'
    [row] = compare(tmp_path / "a", tmp_path / "b")
    assert (row.rewards.n, row.rewards.difference) == (40, 0)
    assert problems(first) == problems(second) == []
    assert list(player_names([first, second]).values()) == [
        "greedy (prompt_format think-action)",
        "greedy (prompt_format json)",
    ]
    alike = replace(second, config=second.config | {"prompt_format": "think-action-terse"})
    assert len({*player_names([first, alike]).values()}) == 2


def test_adapters_of_several_runs_are_told_apart_by_the_folders_of_their_results(tmp_path: Path) -> None:
    result, results = played(tmp_path), []
    for run, commit in (("q2", "1" * 40), ("q3", "2" * 40)):
        identity = result.config["identity"] | {"adapter_commit": commit}
        config = result.config | {"player": "folder:adapter", "identity": identity}
        folder = tmp_path / f"{run}__adapter" / commit / "lake" / run_hash(config)
        results.append(replace(result, config=config, folder=folder))
    assert list(player_names(results).values()) == ["folder:adapter (q2__adapter)", "folder:adapter (q3__adapter)"]
    elsewhere = [replace(one, folder=tmp_path) for one in results]
    assert next(iter(player_names(elsewhere).values())) == f"folder:adapter (adapter_commit {'1' * 12})"


def test_what_is_typed_goes_before_the_suite_s_default(tmp_path: Path) -> None:
    suite = Suite(name="mine", tasks=LAKE.tasks, episodes=5, prompt_format="action-only")
    assert played(tmp_path, suite=suite).prompt_format == "action-only"
    assert played(tmp_path, "json", suite).prompt_format == "json"
    config = played(tmp_path, suite=suite).config
    assert config["prompt_format_hash"] == format_hash(PROMPT_FORMATS["action-only"])


def test_a_reply_is_read_by_the_format_of_its_run(tmp_path: Path) -> None:
    """The same replies under the name of another format cannot be read."""
    result = played(tmp_path, "json")
    wrong = PROMPT_FORMATS["think-action"]
    config = result.config | {"prompt_format": wrong.name, "prompt_format_hash": format_hash(wrong)}
    (result.folder / "config.lock.json").write_text(json.dumps(config))
    moved = result.folder.rename(result.folder.with_name(run_hash(config)))
    assert "its reply does not parse to" in "; ".join(problems(load_result(moved)))


def test_a_built_in_name_with_another_hash_is_found(tmp_path: Path) -> None:
    result = played(tmp_path, "json")
    config = result.config | {"prompt_format_hash": "0" * 16}
    (result.folder / "config.lock.json").write_text(json.dumps(config))
    moved = result.folder.rename(result.folder.with_name(run_hash(config)))
    assert problems(load_result(moved))[0] == "its prompt format json differs from the format of this version"


@pytest.mark.usefixtures("own")
def test_a_format_of_ones_own_is_verified_without_its_replies_and_never_imported(tmp_path: Path) -> None:
    result = played(tmp_path / "own", "shouted_format:Shouted")
    assert result.prompt_format == "shouted"
    assert run_hash(played(tmp_path / "plain").config) != run_hash(result.config)
    del sys.modules["shouted_format"]
    [row] = verify(tmp_path / "own")
    assert row["problems"] == []
    assert row["unchecked"][0] == "replies not checked: the format shouted is not built in"
    with pytest.raises(UserError, match="replies not checked"):
        checked_run(result.folder)
    assert "shouted_format" not in sys.modules
