"""Tables say how a model acted, and the command beside them plays a new row the same way."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.cli import parse
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import compare
from msgrpo_hub.evaluation.results import Result, find_results, run_hash
from msgrpo_hub.evaluation.tables import HEADS, acting, eval_command, markdown_table, results_table, shown_columns
from msgrpo_hub.hub.leaderboard import Leaderboard, as_markdown, as_rows, ranked
from tests.stored import stored_runs

LAKE = "FrozenLake-NotSlippery-v1"


@pytest.fixture(scope="module")
def model() -> Result:
    [result] = [result for result in find_results(stored_runs("pocket")) if result.task == LAKE]
    return result


@pytest.fixture(scope="module")
def scripted() -> Result:
    [result] = [result for result in find_results(stored_runs("random")) if result.task == LAKE]
    return result


def played_with(result: Result, prompt_format: str = "think-action", **identity: Any) -> Result:
    config = result.config | {"identity": result.config["identity"] | identity, "prompt_format": prompt_format}
    return replace(result, config=config)


def test_a_model_has_its_temperature_token_limit_prompt_format_and_engine(model: Result, scripted: Result) -> None:
    assert list(acting(model).values()) == ["1", "32", "think-action", "fast"]
    now = played_with(model, "json", temperature=0.7, top_k=5, engine="fast", max_new_tokens=64)
    assert list(acting(now).values()) == ["0.7, top-k 5", "64", "json", "fast"]
    assert acting(played_with(model, mode="score", temperature=None, max_new_tokens=None))["temperature"] == "actions scored"
    assert acting(played_with(model, kind="endpoint"))["engine"] == "server"
    assert set(acting(scripted).values()) == {"–"}
    assert (shown_columns([scripted]), shown_columns([scripted, model])) == ([], list(HEADS))


def test_one_model_at_two_temperatures_is_two_named_rows_in_every_table(model: Result, scripted: Result) -> None:
    runs = [model, played_with(model, temperature=0.25), scripted]
    board = Leaderboard(source="here", commit="", results=ranked(runs), refused={})
    for text in (results_table(runs), as_markdown(board)):
        rows = re.findall(r"^(?:\| )?(pocket \(temp[^)]*\)) .*?(\S+) [| ]*32 [| ]*think-action [| ]*(fast)", text, re.MULTILINE)
        assert len({name for name, *_ in rows}) == 2
        assert {(temperature, engine) for _, temperature, engine in rows} == {("0.25", "fast"), ("1", "fast")}
        assert all(head in text for head in HEADS)
    rows = as_rows(board)
    assert sorted(row["temperature"] for row in rows) == ["0.25", "1", "–"]
    assert len({row["player"] for row in rows}) == 3
    assert [row["rank"] for row in rows] == [[1, 3]] * 3
    assert "temperature" not in markdown_table([scripted], lambda result: result.player)


def test_compare_takes_two_temperatures_of_a_model_by_their_folders(model: Result, tmp_path: Path) -> None:
    for temperature in (0.5, 1.0):
        config = played_with(model, temperature=temperature).config
        folder = Path(shutil.copytree(model.folder, tmp_path / "pocket" / LAKE / run_hash(config)))
        (folder / "config.lock.json").write_text(json.dumps(config))
    cold, warm = sorted(find_results(tmp_path), key=lambda run: float(run.config["identity"]["temperature"]))
    words = r"\(pocket \(temperature 0.5\), suite standard\).*give the folder of one player or one run"
    with pytest.raises(UserError, match=words) as refusal:
        compare(tmp_path / "pocket", tmp_path / "pocket")
    assert "(pocket (temperature 1.0), suite standard)" in str(refusal.value)
    [found] = compare(cold.folder, warm.folder)
    assert (found.task, found.rewards.difference, found.rewards.n) == (LAKE, 0.0, 200)


def test_the_command_that_adds_a_row_has_the_settings_of_most_models_shown(model: Result, scripted: Result) -> None:
    rows = [scripted, model, played_with(model, temperature=0.5), played_with(model, base_commit="0")]
    command = eval_command(rows, "runs/mine")
    assert command == "msgrpo eval PLAYER --suite standard --temperature 1.0 --max-new-tokens 32 --output-dir runs/mine"
    scored = played_with(model, "json", mode="score", temperature=None, max_new_tokens=None)
    assert "--suite standard --mode score --prompt-format json --output-dir" in eval_command([scored], "runs/mine")
    for line in (command, eval_command([scored], "runs/mine"), eval_command([], "runs/mine")):
        assert parse(shlex.split(line)[1:]).suite == "standard"


def test_a_foreign_run_puts_no_words_of_its_own_into_the_command(model: Result) -> None:
    hostile = played_with(model, "evil:code", temperature="1;reboot", top_k="& reboot")
    hostile = replace(hostile, config=hostile.config | {"suite": "x; reboot"})
    command = eval_command([hostile], "runs/mine")
    assert command == "msgrpo eval PLAYER --suite standard --max-new-tokens 32 --output-dir runs/mine"
