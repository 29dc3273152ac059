"""Cards say only what was checked, show the texts of others as texts, and say how to install, use and cite."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.hub.adapter_card import AdapterCard
from msgrpo_hub.hub.adapter_metadata import adapter_metadata, render_adapter
from msgrpo_hub.hub.bases import render_base
from msgrpo_hub.hub.card_rules import split_card
from msgrpo_hub.hub.leaderboard import read_folder
from msgrpo_hub.hub.results import results_card
from msgrpo_hub.hub.results_card import render_results
from msgrpo_hub.hub.rollouts import stage_rollouts
from msgrpo_hub.hub.run_results import read_run
from tests.hub.conftest import msgrpo, refused
from tests.hub.pushed_rollouts import LAKE
from tests.hub.pushed_rollouts import push as push_rollouts
from tests.hub.test_cards import CARD, SCORE, figure, row, with_players
from tests.hub_server.lanes import Loopback

HOSTILE = "MIT\n\n# Owned\n<script src=https://evil.example/x></script> [a](javascript:b()) ![c](https://e.example) `d` | *e* _f_"


def card_of(text: str) -> AdapterCard:
    """A card whose texts of others are all this one."""
    return dataclasses.replace(
        CARD,
        base=dataclasses.replace(CARD.base, license_name=text),
        config=dataclasses.replace(CARD.config, init_adapter=text),
        scores=(dataclasses.replace(SCORE, task=text, suite=text, split=text, mode=text, references={text: 1.0}),),
        hardware=text,
        versions={text: text},
        lora_layers=(text,),
    )


def markup(card: str) -> Counter[str]:
    """How often a card has a heading, a link, HTML and so on."""
    blocks = MarkdownIt("commonmark").enable("table").parse(split_card(card)[1])
    parts = [*blocks, *(part for block in blocks for part in block.children or ())]
    return Counter(part.type for part in parts if part.type not in ("text", "softbreak"))


def test_texts_of_others_are_shown_and_mark_nothing_up() -> None:
    hostile, harmless = render_adapter(card_of(HOSTILE)), render_adapter(card_of("harmless"))
    assert markup(hostile) == markup(harmless)
    assert "# Owned" not in hostile.splitlines()
    assert r"\<script src=https://evil.example/x\>" in hostile


def test_figures_in_the_metadata_are_rounded() -> None:
    thirds = with_players(**{**CARD.games[0].players, "adapter": row(1 / 3)})
    score = dataclasses.replace(SCORE, reward=figure(-2 / 3))
    metadata = adapter_metadata(dataclasses.replace(CARD, games=thirds, scores=(score,)))
    own, measured = metadata["model-index"][0]["results"]
    assert own["metrics"][0]["value"] == 0.3333
    assert own["metrics"][0]["args"]["interval_95"] == [0.2833, 0.3833]
    assert measured["metrics"][0]["value"] == -0.6667


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A card of each kind."""
    folder = tmp_path_factory.mktemp("cards")
    evaluate("optimal", Suite(name="mine", tasks=(LAKE,), episodes=2), folder / "runs")
    (folder / "rollouts").mkdir()
    stage_rollouts(folder / "runs", "ada/rollouts", folder / "rollouts")
    about = (pocket_path() / "README.md").read_text(encoding="utf-8")
    return {
        "adapter": render_adapter(CARD),
        "base": render_base("ada/pocket", about),
        "results": render_results(results_card(dataclasses.replace(read_folder(folder / "runs"), source="ada/board"))),
        "rollouts": (folder / "rollouts" / "README.md").read_text(encoding="utf-8"),
    }


@pytest.mark.parametrize("kind", ["adapter", "base", "results", "rollouts"])
def test_every_card_says_how_to_install_the_package_and_under_what_licence_it_stands(cards: dict[str, str], kind: str) -> None:
    metadata, text = split_card(cards[kind])
    assert "pip install msgrpo-hub" in text
    assert metadata["license"]


@pytest.mark.parametrize("kind", ["adapter", "results", "rollouts"])
def test_a_card_says_what_it_is_for_and_cites_with_full_names(cards: dict[str, str], kind: str) -> None:
    assert "author  = {Dilkes, Jim and Yazdanpanah, Vahid and Stein, Sebastian}," in cards[kind]
    assert "## Intended use" in cards[kind] or "## Use and limits" in cards[kind]


def test_the_quick_start_plays_a_typical_episode(finished_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished_run, tmp_path / "run"))
    table = pq.read_table(run / "test_episodes.parquet")
    rewards = iter([0.0, 1.0, 1.0, 1.0])
    changed = [
        next(rewards) if (one["player"], one["temperature"]) == ("adapter", 1.0) else one["reward"] for one in table.to_pylist()
    ]
    place = table.column_names.index("reward")
    pq.write_table(table.set_column(place, table.field(place), pa.array(changed)), run / "test_episodes.parquet")
    typical = read_run(run).typical
    assert typical.index == 1
    assert re.fullmatch(r"(no )?success 1\.0", typical.end)
    assert f'episode_seed(game.id, "test", {typical.index})]' in render_adapter(dataclasses.replace(CARD, typical=typical))


@pytest.mark.parametrize(
    ("wins", "verdict"),
    [((20, 30), "better"), ((30, 20), "worse"), ((20, 22), "inconclusive"), ((20, 20), "inconclusive")],
)
def test_an_adapter_is_held_against_its_base_episode_by_episode(
    wins: tuple[int, int], verdict: str, finished_run: Path, tmp_path: Path
) -> None:
    """20 and 30 of 50 have intervals that overlap; but where one wins in ten episodes and the other in none, they differ."""
    run = Path(shutil.copytree(finished_run, tmp_path / "run"))
    table = pq.read_table(run / "test_episodes.parquet")
    first = {row["player"]: row for row in table.to_pylist() if row["temperature"] == 1.0}
    rows = [
        first[player] | {"index": index, "success": index < won, "reward": float(index < won)}
        for player, won in zip(("base", "adapter"), wins, strict=True)
        for index in range(50)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), run / "test_episodes.parquet")
    assert [*read_run(run).verdicts.values()] == [verdict]
    rows[0]["reward"] = 7.0
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), run / "test_episodes.parquet")
    with pytest.raises(UserError, match=r"test_episodes.parquet' is damaged \(.*expected -1.0 to 1.0"):
        read_run(run)


def test_rollouts_on_a_card_are_public_and_of_the_same_run(loopback: Loopback, saved: Path, evaluated: Path, base: str) -> None:
    own, others, repo = loopback.repository("dataset"), loopback.repository("dataset"), loopback.repository()
    loopback.owner.call(push_rollouts, saved, own)
    loopback.owner.call(push_rollouts, evaluated, others, private=False)
    for dataset, words in (
        (own, "are private: expected a public dataset"),
        (others, "has no training episodes of this run"),
        ("ada/nothing", "'ada/nothing' does not exist"),
    ):
        arguments = ("push", "adapter", saved, repo, "--base", base, "--rollouts", dataset)
        assert words in refused(loopback.owner.attempt(msgrpo, *arguments))
    loopback.stored(own, "dataset").private = False
    done = loopback.owner.attempt(msgrpo, "push", "adapter", saved, repo, "--base", base, "--rollouts", own)
    assert done.code == 0, done.err
    assert split_card(loopback.files(repo)["README.md"].decode())[0]["datasets"] == [own]
