"""Cards state only what was measured, their code runs, and cards that the Hub would refuse are refused before the push."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from jinja2 import UndefinedError

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.over_seeds import over_seeds
from msgrpo_hub.evaluation.paired import Verdict
from msgrpo_hub.games import make_game
from msgrpo_hub.hub.adapter_card import AdapterCard, Base, Figure, GameTable, PlayerRow, TaskScore, Typical
from msgrpo_hub.hub.adapter_metadata import adapter_metadata, render_adapter
from msgrpo_hub.hub.card_rules import check_card, split_card
from msgrpo_hub.hub.cards import render
from msgrpo_hub.training.config import TrainConfig
from tests.hub_server.cards import check_card as check_as_the_hub_does
from tests.hub_server.client import LOADS_MODELS

warm = LOADS_MODELS

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def figure(mean: float, spread: float | None = 0.05) -> Figure:
    return Figure(mean=mean, low=None if spread is None else mean - spread, high=None if spread is None else mean + spread)


def row(reward: float, spread: float | None = 0.05) -> PlayerRow:
    mean = figure(reward, spread)
    return PlayerRow(
        success=mean,
        reward=mean,
        success_greedy=mean,
        reward_greedy=mean,
        unreadable_rate=0.125,
        truncated_rate=0.0,
        illegal_rate=0.5,
    )


SCORE = TaskScore(
    task="Snake-PoisonApple-v1",
    task_hash="1b4e0e056bf99c1e",
    suite="semantic",
    split="test",
    episodes=100,
    mode="generate",
    temperature=0.5,
    reward=figure(-2.25),
    success=figure(0.25),
    references={"random": -1.94, "greedy": -4.79},
    folder="results/Snake-PoisonApple-v1/0123",
)
TABLE = GameTable(
    game=make_game("FrozenLake-NotSlippery-v1"),
    game_hash="f67e9e6f9fa4ef34",
    boards=75,
    players={"random": row(0.0), "base": row(0.25), "adapter": row(0.75), "optimal": row(1.0)},
)
CARD = AdapterCard(
    repo_id="ada/lake",
    games=(TABLE,),
    config=TrainConfig(model=f"Qwen/Qwen2.5-3B-Instruct@{COMMIT}", updates=700, groups=1, group_size=100, selected_per_group=25),
    base=Base(repo_id="Qwen/Qwen2.5-3B-Instruct", commit=COMMIT, license="other", license_name="qwen-research"),
    init_adapter_commit="",
    scores=(),
    replayed=7,
    typical=Typical(index=3, end="success 1.0"),
    has_curves=True,
    seconds={"acting": 100.0, "training": 20.0, "evaluating": 3.0},
    processes=1,
    threads=2,
    memory_mb=12_340.0,
    hardware="NVIDIA H200",
    versions={"torch": "2.13.0"},
    lora_layers=("k_proj", "q_proj"),
    adapter_update=700,
    over_seeds={},
    rollouts="ada/lake-rollouts",
)


def changed(**changes: Any) -> AdapterCard:
    return dataclasses.replace(CARD, **changes)


def with_players(**players: PlayerRow) -> tuple[GameTable, ...]:
    return (dataclasses.replace(TABLE, players=players),)


# ---- what it says


def test_a_run_of_several_seeds_has_the_figures_over_seeds_and_one_alone_says_that_it_is_alone() -> None:
    found = over_seeds({0: 0.75, 1: 0.9, 2: 0.8})
    text = render_adapter(changed(over_seeds={TABLE.game.id: {"reward": found, "reward_greedy": found}}))
    assert "This run is one of 3 that differ in their seed alone." in text
    assert f"| reward | {found} | 0.076 | 0.750 | 0.900 |\n| reward, greedy | {found} |" in text
    assert "One run with one seed" not in text
    assert "One run with one seed" in render_adapter(CARD)
    assert check_as_the_hub_does("model", text) == ([], [])


def test_the_card_says_which_weights_were_kept() -> None:
    assert "The weights are those of the last update.\n" in render_adapter(CARD)
    best = render_adapter(changed(config=dataclasses.replace(CARD.config, keep="best"), adapter_update=340))
    assert "The weights are those of update 340, which were the best on the 50 validation episodes" in best


def test_the_front_matter_names_the_base_the_results_and_their_intervals() -> None:
    metadata, _ = split_card(render_adapter(changed(scores=(SCORE,))))
    assert (metadata["base_model"], metadata["base_model_relation"]) == ("Qwen/Qwen2.5-3B-Instruct", "adapter")
    assert (metadata["library_name"], metadata["pipeline_tag"]) == ("peft", "text-generation")
    assert (metadata["license"], metadata["license_name"]) == ("other", "qwen-research")
    assert metadata["datasets"] == ["ada/lake-rollouts"]
    own, measured = metadata["model-index"][0]["results"]
    assert own["dataset"]["revision"] == "f67e9e6f9fa4ef34"
    reward, success = own["metrics"]
    assert (reward["type"], reward["value"], success["type"]) == ("mean_reward", 0.75, "success_rate")
    assert reward["args"] == {"episodes": 200, "temperature": 1.0, "interval_95": [0.7, 0.8]}
    assert (measured["dataset"]["type"], measured["dataset"]["config"]) == ("Snake-PoisonApple-v1", "semantic")
    assert measured["metrics"][0]["value"] == -2.25


def test_cards_pass_our_rules_and_those_of_the_hub() -> None:
    for card in (CARD, changed(scores=(SCORE,)), changed(games=with_players(), replayed=None), changed(rollouts=None)):
        assert check_as_the_hub_does("model", render_adapter(card)) == ([], [])


def test_the_card_states_training_settings_time_and_machine() -> None:
    text = render_adapter(CARD)
    assert "700 updates of 1 × 100 episodes" in text
    assert "(70,000 in all)" in text
    assert "123 s (100 acting, 20 training, 3 testing) on\nNVIDIA H200, 1 process with 2 CPU threads, 12.3 GB at most." in text
    for name, value in dataclasses.asdict(CARD.config).items():
        assert f"| {name} | {'–' if value in ('', {}) else value} |" in text
    for rule in TABLE.game.rules:
        assert f"- {rule}\n" in text
    assert "ada/lake-rollouts" in text


def test_the_card_shows_every_player_with_intervals_and_the_rates_of_faulty_replies() -> None:
    text = render_adapter(CARD)
    assert "| **adapter** | 0.750 [0.700, 0.800] |" in text
    assert "| base | 0.250 [0.200, 0.300] |" in text
    assert "12.5 % were unparsed, 0.0 % were truncated at\n64 tokens, 50.0 % named an illegal action" in text


@pytest.mark.parametrize(
    ("adapter", "verdict", "words"),
    [
        (row(0.75), "better", None),
        (row(0.28), "inconclusive", "do not show that it helps"),
        (row(0.1), "worse", "plays worse than its base"),
        (row(0.75, None), "better", "say next to nothing"),
        (row(0.75), None, None),
    ],
)
def test_the_card_warns_unless_the_adapter_is_shown_to_help(
    adapter: PlayerRow, verdict: Verdict | None, words: str | None
) -> None:
    [table] = with_players(**{**TABLE.players, "adapter": adapter})
    text = render_adapter(changed(games=(dataclasses.replace(table, verdict=verdict),)))
    warnings = ["do not show that it helps", "plays worse than its base", "say next to nothing"]
    assert [warning for warning in warnings if warning in text] == ([words] if words else [])


def test_the_card_says_how_often_each_start_was_played() -> None:
    for repeats, said in ((1, "| 100 |"), (4, "| 100 × 4 |")):
        text = render_adapter(changed(scores=(dataclasses.replace(SCORE, repeats=repeats),)))
        assert f"| Snake-PoisonApple-v1 | semantic, test {said} -2.250" in text


@pytest.mark.parametrize(
    ("how", "learned"),
    [
        ({}, "It learned from rewards alone, by playing"),
        (
            {"teacher": "optimal", "taught": 3, "updates": 5},
            "It learned from the moves of a teacher, and then from rewards, ",
        ),
        ({"teacher": "optimal", "taught": 3, "updates": 3}, "It learned from the moves of a teacher, by playing"),
    ],
)
def test_the_card_says_what_it_learned_from(how: dict[str, Any], learned: str) -> None:
    assert learned in render_adapter(changed(config=dataclasses.replace(CARD.config, **how)))


def test_the_card_of_an_adapter_that_went_on_from_another_says_that_more_may_have_been_learned_there() -> None:
    """The other may have been taught the moves of a teacher."""
    for start, said in (("ada/taught@" + 40 * "a", True), ("", False)):
        text = render_adapter(changed(config=dataclasses.replace(CARD.config, init_adapter=start)))
        assert ("It went on from another adapter, and what that one had learned from is not told here." in text) == said


def test_the_card_says_what_was_not_measured() -> None:
    assert "Not measured: whether it still follows the prompt" in render_adapter(CARD)
    measured = render_adapter(changed(scores=(SCORE,)))
    assert "Not measured: whether it still follows the prompt" not in measured
    assert "| Snake-PoisonApple-v1 | semantic, test | 100 | -2.250 [-2.300, -2.200] |" in measured
    assert "random -1.940, greedy -4.790" in measured
    silent = render_adapter(changed(games=with_players(), replayed=None, has_curves=False))
    assert "It has not been evaluated" in silent
    assert "![" not in silent
    assert "model-index" not in silent


def test_a_rendered_card_has_no_leftovers_of_its_template() -> None:
    for card in (CARD, changed(scores=(SCORE,), memory_mb=None, hardware="", versions={}, rollouts=None, replayed=None)):
        text = render_adapter(card)
        assert not re.search(r"\bNone\b|\{\{|\}\}|\{%|\n\n\n| $", text, re.MULTILINE)
        assert max(len(line) for line in text.splitlines()) < 400


def test_a_name_that_a_template_does_not_find_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="front_matter"):
        render("adapter.md.jinja", {"card": CARD})


# ---- what is refused


def card(**metadata: Any) -> str:
    lines = [f"{key.replace('_index', '-index')}: {value}" for key, value in metadata.items()]
    return "---\n" + "\n".join(lines) + "\n---\n# A card\n"


RESULT = "task: {{type: x}}, dataset: {{type: d, name: d}}, metrics: [{{type: m, value: {}}}]"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (card(license="nope"), "license 'nope'"),
        (card(license="other"), "needs a license_name"),
        (card(base_model="/home/ada/model"), "base_model '/home/ada/model' is not a repository"),
        (card(base_model="./runs/1"), "base_model './runs/1' is not a repository"),
        (card(base_model="a/b/c"), "is not a repository"),
        (card(datasets="['..']"), "datasets '..' is not a repository"),
        (card(tags="[1]"), "tags must be strings"),
        (card(model_index="[{results: []}]"), "model-index has no name"),
        (card(model_index=f"[{{name: a, results: [{{{RESULT.format('.nan')}}}]}}]"), "m = nan is not a finite number"),
        (card(model_index=f"[{{name: a, results: [{{{RESULT.format('.inf')}}}]}}]"), "m = inf is not a finite number"),
        (card(model_index=f"[{{name: a, results: [{{{RESULT.format('12 +/- 3')}}}]}}]"), "is not a finite number"),
        (card(model_index="[{name: a, results: [{metrics: [{value: 1}]}]}]"), "task.type is missing"),
        (card(license="mit") + "trained in /home/ada/runs", "it has a path of this machine"),
        (card(license="mit") + "trained in C:\\Users\\ada", "it has a path of this machine"),
        ("# A card\n", "expected front matter"),
        ("---\n- a\n---\n", "expected front matter"),
        ("---\na: [\n---\n", "is not valid YAML"),
    ],
)
def test_a_card_that_the_hub_would_refuse_is_refused_before_the_push(content: str, words: str) -> None:
    with pytest.raises(UserError, match="the card is not pushed") as refusal:
        check_card(content)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_number_that_is_not_finite_never_becomes_a_card() -> None:
    games = with_players(**{**TABLE.players, "adapter": row(float("nan"), None)})
    with pytest.raises(UserError, match="not a finite number"):
        render_adapter(changed(games=games))


def test_unknown_facts_are_left_out_of_the_metadata() -> None:
    bare = adapter_metadata(changed(base=Base(repo_id="gpt2", commit=COMMIT, license=None), games=with_players(), rollouts=None))
    assert not {"license", "datasets", "model-index"} & set(bare)
    assert "The base states no licence" in render_adapter(changed(base=Base(repo_id="gpt2", commit=COMMIT, license=None)))
