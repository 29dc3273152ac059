"""Cards say what a run chose: its games, each with a table and a verdict, its credit, its prompt format, its first adapter."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.hub.adapter_card import AdapterCard, Base
from msgrpo_hub.hub.adapter_metadata import render_adapter
from msgrpo_hub.hub.adapters import adapter_card, public_config, published_results
from msgrpo_hub.hub.card_rules import split_card
from msgrpo_hub.hub.run_results import read_run
from msgrpo_hub.training import TrainConfig, train
from tests.hub.test_cards import CARD, TABLE, row
from tests.hub_server.cards import check_card as check_as_the_hub_does

LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
BASE = Base(repo_id="ada/base", commit="0" * 40, license="mit")
HASH = "ab" * 32
SMALL: dict[str, Any] = {"updates": 1, "groups": 2, "group_size": 2, "selected_per_group": 1, "max_new_tokens": 4}
TESTED: dict[str, Any] = {"eval_every": 0, "test_episodes": 3, "lora_rank": 4, "lora_alpha": 8}


def card_with(**settings: Any) -> AdapterCard:
    return dataclasses.replace(CARD, config=dataclasses.replace(CARD.config, **settings))


def test_the_card_of_a_run_of_several_games_has_one_results_table_for_each(tiny_model: Path, tmp_path: Path) -> None:
    config = TrainConfig(game=f"{LAKE}=3,{SNAKE}", model=str(tiny_model), **SMALL, **TESTED)
    summary = train(config, tmp_path, show_progress=False)
    run = read_run(tmp_path)
    card = adapter_card(run, "ada/both", public_config(run.config, BASE), BASE, None)
    text = render_adapter(card)
    assert check_as_the_hub_does("model", text) == ([], [])
    assert f"`{LAKE}` (weight 3) and `{SNAKE}` (weight 1)" in text
    titles = re.findall(r"^\*\*(\S+-v1)\*\*\n\n\| player", text, re.MULTILINE)
    assert titles == [LAKE, SNAKE]
    tested = "The test episodes are played on"
    assert re.findall(rf"{tested} (\d+) boards", text) == [str(table["boards"]) for table in (summary, *summary["other_games"])]
    assert "Trained before boards had splits" not in text
    [of_snake] = summary["other_games"]
    low, high = summary["random"]["reward_interval"]
    means = [f"{summary['random']['reward']:.3f} [{low:.3f}, {high:.3f}]", f"{of_snake['random']['reward']:.3f} (n < 30)"]
    assert re.findall(r"^\| random \| ([^|]*) \|", text, re.MULTILINE) == means
    metadata, _ = split_card(text)
    assert [result["dataset"]["type"] for result in metadata["model-index"][0]["results"]] == [LAKE, SNAKE]
    assert {LAKE, SNAKE} <= set(metadata["tags"])
    results = published_results(card)
    assert (results["game"], [other["game"] for other in results["other_games"]]) == (LAKE, [SNAKE])
    assert results["other_games"][0]["players"]["adapter"]["reward"]["mean"] == of_snake["adapter"]["reward"]

    assert run.verdicts == dict.fromkeys((LAKE, SNAKE), "inconclusive"), "two updates of a random model change nothing"
    forged = json.loads((tmp_path / "summary.json").read_text())
    assert run.players[LAKE]["adapter"].reward.rule == forged["adapter"]["reward_rule"] == "wilson"
    forged["adapter"]["reward_rule"] = "made up"
    (tmp_path / "summary.json").write_text(json.dumps(forged))
    assert read_run(tmp_path).players[LAKE]["adapter"].reward.rule is None
    spoiled = json.loads((tmp_path / "summary.json").read_text()) | {"other_games": []}
    (tmp_path / "summary.json").write_text(json.dumps(spoiled))
    with pytest.raises(UserError, match=f"no results for {SNAKE}: expected one table per game"):
        read_run(tmp_path)


def test_each_game_has_its_own_verdict() -> None:
    helped = dataclasses.replace(TABLE, game=make_game(SNAKE))
    harmed = dataclasses.replace(TABLE, players={**TABLE.players, "adapter": row(0.1)}, verdict="worse")
    text = render_adapter(dataclasses.replace(card_with(game=f"{SNAKE},{LAKE}"), games=(helped, harmed)))
    first, second = text.split("\n## ")[0].split("On 200 test episodes of ")[1:]
    assert first.startswith(f"`{SNAKE}`")
    assert second.startswith(f"`{LAKE}`")
    assert ["plays worse than its base" in part for part in (first, second)] == [False, True]


def test_the_card_names_each_choice_that_is_not_the_default() -> None:
    assert "differ from the defaults" not in render_adapter(CARD)
    text = render_adapter(card_with(credit="reward-to-go", minibatches=4, prompt_format="json"))
    assert (
        "differ from the defaults: `credit` is `reward-to-go` (default `whole-episode`), "
        "`prompt_format` is `json` (default `think-action`), `minibatches` is `4` (default `1`)." in text
    )


def test_the_card_tells_which_updates_were_taught() -> None:
    how = {"groups": 2, "group_size": 8, "selected_per_group": 2, "teacher": "optimal", "taught": 3}
    for updates, said in ((3, "The episodes are of `FrozenLake-NotSlippery-v1`."), (5, "2 updates more of 2 × 8 episodes of")):
        text = render_adapter(card_with(updates=updates, **how))
        assert "The first 3 updates were taught the moves of the player `optimal` by maximum likelihood, from 6 episodes" in text
        assert said in text
    assert "(32 in all)" in text
    assert [TrainConfig(**how, updates=5).episodes(updates) for updates in (0, 2, 3, 4, 5)] == [0, 4, 6, 22, 38]


def test_the_card_names_the_adapter_that_training_started_from_and_no_local_folder() -> None:
    assert "started from" not in render_adapter(CARD).split("## Training")[1].split("## Limits")[0]
    published = public_config(TrainConfig(init_adapter="ada/first"), BASE, "0123abcd")
    assert published.init_adapter == "ada/first@0123abcd"
    text = render_adapter(dataclasses.replace(CARD, config=published, init_adapter_commit="0123abcd"))
    assert "Training started from the adapter `ada/first@0123abcd`." in text
    assert "msgrpo train --config config.toml" in text

    private = public_config(TrainConfig(init_adapter="runs/zaphod/adapter"), BASE, HASH)
    text = render_adapter(dataclasses.replace(CARD, config=private, init_adapter_commit=HASH))
    assert "zaphod" not in text
    assert "a local adapter that is not published; the SHA-256 hash of its folder starts with `abababababab`" in text
    assert "msgrpo train --config config.toml" not in text
