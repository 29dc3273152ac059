"""Results as text: every player in its block, figures with intervals, warnings, settings of models, and the score of silence."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.cli import main, parse
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation import compare, evaluate
from msgrpo_hub.evaluation.results import Result, find_results
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.summary import plays
from msgrpo_hub.evaluation.tables import (
    HEADS,
    RANKS,
    acting,
    comparison_table,
    eval_command,
    markdown_table,
    results_table,
    same_episodes,
    titles,
)
from msgrpo_hub.games import make_game
from msgrpo_hub.games.solving import values_at
from msgrpo_hub.hub.leaderboard import Leaderboard, as_markdown, as_rows, ranked
from msgrpo_hub.players.registry import Player
from msgrpo_hub.rendering.report import report_page
from msgrpo_hub.rollout import replayed_states
from tests.evaluation.played import FIRM as LAKE
from tests.evaluation.played import SHORT as SNAKE
from tests.stored import stored_runs

SUITE = Suite(name="mine", tasks=(SNAKE, LAKE), episodes=30)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    evaluate(["random", "greedy"], SUITE, folder)
    return folder


def test_tables_print_as_markdown_csv_and_latex(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for layout in ("markdown", "csv", "latex"):
        main(["compare", str(place / "random"), str(place / "greedy"), "--format", layout])
        said[layout] = capsys.readouterr().out
    found = {(row["task"], float(row["rewards.difference"])) for row in csv.DictReader(StringIO(said["csv"]))}
    assert found == {(row.task, row.rewards.difference) for row in compare(place / "random", place / "greedy")}
    cells = [line.count("|") for line in said["markdown"].splitlines() if line.startswith("|")]
    assert (len(cells), set(cells)) == (5, {9})  # two tasks, three hypotheses
    assert [line.count(" & ") for line in said["latex"].splitlines() if line.endswith(r" \\")] == [7] * 4


def of_lake(folder: Path) -> list[Result]:
    return [result for result in find_results(folder) if result.task == LAKE]


def blocks(results: Sequence[Result]) -> list[list[str]]:
    return [block.splitlines() for block in results_table(results).removesuffix(f"\n\n{RANKS}").split("\n\n")]


# ---- results


def test_a_block_per_task_and_the_best_player_first(place: Path) -> None:
    lake, snake = blocks(find_results(place))
    assert re.match(rf"{LAKE}   30 test episodes on 2\d boards   exact: silent 0\.00, random 0\.0", lake[0])
    assert lake[0].endswith("optimal 1.00")
    assert snake[0].startswith(f"{SNAKE}   30 test episodes on 30 boards   played on the same seeds: random ")
    for block in (lake, snake):
        assert [line.split()[0] for line in block[3:]] == ["greedy", "random"]
        assert set(block[2]) == {"─"}
        assert len({len(line) for line in block[1:]}) == 1
    assert ["luck-adjusted" in block[1] for block in (lake, snake)] == [True, False]
    assert re.search(r"reward = success .*1\.000 \[0\.886, 1\.000\]   1\.00", " ".join(lake[1::2]))
    assert re.search(r"100% of \d+ ", lake[3])


def test_runs_on_other_episodes_are_in_their_own_block(place: Path, tmp_path: Path) -> None:
    others = evaluate("random-safe", replace(SUITE, tasks=(LAKE,), episodes=40), tmp_path)
    others += evaluate("random-safe", replace(SUITE, tasks=(LAKE,), split="validation"), tmp_path)
    found = blocks([*find_results(place), *others])
    heads = [f"{LAKE}   {episodes} episodes" for episodes in ("30 test", "40 test", "30 validation")]
    assert [block[0].partition(" on ")[0] for block in found[:3]] == heads
    assert [len(block) for block in found] == [5, 4, 4, 5]
    for field, value in (("task_hash", "0"), ("harness", 0), ("repeats", 2)):
        groups = same_episodes([others[0], replace(others[0], config=others[0].config | {field: value})])
        assert len({*titles(groups)}) == len(groups) == 2


class Down:
    """A server that answers nothing, or only on boards with an even number of holes."""

    def __init__(self, wholly: bool) -> None:
        self.wholly = wholly

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        fails = [self.wholly or len(prompt.state.holes) % 2 for prompt in prompts]
        return [Completion(text="?", error="HTTP 500" if failed else "") for failed in fails]


@pytest.mark.parametrize("wholly", [True, False])
def test_a_run_that_is_not_complete_says_so_and_changes_no_other_line(wholly: bool, place: Path, tmp_path: Path) -> None:
    player = Player(name="server", policy=Down(wholly), identity={"kind": "test"}, folder="server")
    failed = run_task(player, SUITE, LAKE, tmp_path)
    for order in ([failed, *of_lake(place)], [*of_lake(place), failed]):
        [block] = blocks(order)
        assert block[0].endswith("optimal 1.00")
        lines = {line.split()[0]: line for line in block[3:]}
        assert next(iter(lines)) == "greedy"
        assert not wholly or list(lines)[2] == "server"
        assert lines["server"].endswith(f"NOT COMPLETE, {failed.summary['failed']} failed")
        assert (lines["server"].count("– ") > 1) == wholly  # one is its rank
        assert "NOT COMPLETE" not in lines["greedy"] + lines["random"]


def test_the_same_episodes_under_another_suite_count_once_and_the_complete_run_counts(place: Path, tmp_path: Path) -> None:
    evaluate(["random", "greedy"], replace(SUITE, name="again", tasks=(LAKE,)), tmp_path)
    again = [replace(result, summary=result.summary | {"complete": False, "failed": 1}) for result in find_results(tmp_path)]
    for results in ([*of_lake(place), *again], [*again, *of_lake(place)]):
        [group] = same_episodes(results)
        assert sorted(result.player for result in group) == ["greedy", "random"]
        assert all(result.complete for result in group)


@pytest.mark.parametrize(("boards", "plays"), [(1, 5), (3, 2), (2, 1)])
def test_luck_on_a_few_boards_is_not_flagged_as_above_the_optimum(boards: int, plays: int, tmp_path: Path) -> None:
    suite = Suite(name="mine", tasks=("FrozenLake-Gymnasium-8x8-v1",), episodes=boards, repeats=plays)
    [result] = evaluate("optimal", suite, tmp_path)
    assert result.summary["reward"]["mean"] == 1.0 > result.summary["references"]["optimal"]
    assert "ABOVE THE OPTIMUM" not in results_table([result])
    assert "ABOVE THE OPTIMUM" in results_table([replace(result, summary=result.summary | {"above_optimum": True})])


def test_optimal_moves_count_only_decisions_whose_actions_differ_in_value(tmp_path: Path) -> None:
    suite = Suite(name="mine", tasks=(LAKE,), episodes=100)
    random, optimal = evaluate(["random", "optimal"], suite, tmp_path)
    [snake] = evaluate("random", replace(suite, tasks=(SNAKE,), episodes=2), tmp_path)
    game, taken = make_game(LAKE), []
    for episode in random.episodes:
        for state, step in zip(replayed_states(game, episode), episode.steps, strict=False):
            q = np.array([values_at(game, state).of(state, action) for action in game.actions])
            if np.ptp(q) > 1e-9:
                taken.append(step.action is not None and q[game.actions.index(step.action)] >= q.max() - 1e-9)
    assert random.summary["decisions"] == len(taken)
    assert random.summary["optimal_decisions"] == pytest.approx(np.mean(taken))
    assert (optimal.summary["optimal_decisions"], snake.summary["optimal_decisions"]) == (1, None)
    assert f"100% of {optimal.summary['decisions']}" in results_table([optimal])


def test_a_comparison_shows_its_direction_its_power_and_its_verdict(place: Path) -> None:
    lines = comparison_table(compare(place / "random", place / "greedy")).splitlines()
    assert lines[0] == "second minus first, on the same seeds; 3 hypotheses"
    assert lines[1].split() == ["task", "score", "difference", "p", "(Holm)", "correlation", "detectable", "n", "verdict"]
    assert [line.split()[:2] for line in lines[3:6]] == [[LAKE, "reward"], [SNAKE, "reward"], [SNAKE, "success"]]
    assert lines[-3].startswith("detectable: the smallest difference")
    assert lines[3].endswith("  30   better")
    assert "+0.967 [" in lines[3]  # on one of these lakes random play reaches the goal
    assert " < 0.0001 " in lines[3]
    same = comparison_table(compare(place / "random", place / "random")).splitlines()
    assert all("+0.000 [" in line and line.endswith("inconclusive") for line in same[3:6])


# ---- the settings of models


@pytest.fixture(scope="module")
def model() -> Result:
    return of_lake(stored_runs("pocket"))[0]


@pytest.fixture(scope="module")
def scripted() -> Result:
    return of_lake(stored_runs("random"))[0]


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


def test_one_model_at_two_temperatures_is_two_named_rows_in_every_table(model: Result, scripted: Result) -> None:
    runs = [model, played_with(model, temperature=0.25), scripted]
    board = Leaderboard(source="here", commit="", results=ranked(runs), refused={})
    for text, shared in ((results_table(runs), ""), (as_markdown(board), r" \| 32 \| think-action \| fast \|")):
        rows = re.findall(rf"^(?:\| )?(pocket \(temp[^)]*\)) .*?(\S+){shared}$", text, re.MULTILINE)
        assert len({name for name, *_ in rows}) == 2
        assert {temperature for _, temperature in rows} == {"0.25", "1"}
        assert all(head in text for head in HEADS)
    assert "\ntoken limit 32, prompt format think-action, engine fast\n" in results_table(runs)
    assert max(map(len, results_table(runs).splitlines())) <= 150
    rows = as_rows(board)
    assert sorted(row["temperature"] for row in rows) == ["0.25", "1", "–"]
    assert len({row["player"] for row in rows}) == 3
    assert [row["rank"] for row in rows] == [[1, 3]] * 3
    assert "temperature" not in markdown_table([scripted], lambda result: result.player)


def test_the_command_that_adds_a_row_has_the_settings_of_most_models_shown(model: Result, scripted: Result) -> None:
    rows = [scripted, model, played_with(model, temperature=0.5), played_with(model, base_commit="0")]
    command = eval_command(rows, "runs/mine")
    assert command == "msgrpo eval PLAYER --suite standard --temperature 1.0 --max-new-tokens 32 --output-dir runs/mine"
    scored = eval_command([played_with(model, "json", mode="score", temperature=None, max_new_tokens=None)], "runs/mine")
    assert "--suite standard --mode score --prompt-format json --output-dir" in scored
    for line in (command, scored, eval_command([], "runs/mine")):
        assert parse(shlex.split(line)[1:]).suite == "standard"
    hostile = played_with(model, "evil:code", temperature="1;reboot", top_k="& reboot")
    hostile = replace(hostile, config=hostile.config | {"suite": "x; reboot"})
    command = eval_command([hostile], "runs/mine")
    first, second = command.splitlines()
    assert first == f"msgrpo games {hostile.task} --suite --episodes {hostile.config['episodes']} --split test > mine.toml"
    assert second == "msgrpo eval PLAYER --suite mine.toml --max-new-tokens 32 --output-dir runs/mine"


# ---- doing nothing can score


POISON = "Snake-PoisonApple-v1"


def suite_of(task: str, episodes: int) -> Suite:
    return Suite(name="mine", tasks=(task,), episodes=episodes)


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    folder = tmp_path_factory.mktemp("poisoned")
    return {result.player: result for result in evaluate(["silent", "random-safe", "greedy"], suite_of(POISON, 8), folder)}


def test_a_player_that_does_not_play_has_the_best_reward_on_poison_and_no_rank(poisoned: dict[str, Result]) -> None:
    runs, expected = list(poisoned.values()), ["random-safe", "greedy", "silent"]
    assert max(runs, key=lambda result: float(result.summary["reward"]["mean"])).player == "silent"
    assert [result.player for result in ranked(runs)] == expected
    for text in (results_table(runs), markdown_table(runs, lambda result: result.player)):
        cells = [line.replace("|", " ").split() for line in text.splitlines()]
        rows = [row for row in cells if row and row[0] in poisoned]
        assert [row[0] for row in rows] == expected
        assert ["PLAY" in row for row in rows] == [False, False, True]
        assert rows[-1][1] == "–"  # its rank
    table = report_page(runs).partition("<tbody>")[2].partition("</tbody>")[0]
    assert [part.partition("<")[0].strip() for part in table.split('class="name">')[1:]] == expected
    assert table.count("does not play") == table.partition(">silent")[2].count("does not play") == 1
    [row] = compare([poisoned["random-safe"]], [poisoned["silent"]])
    assert row.not_playing == ("silent",)
    assert f"{POISON}: silent does not play, under half of its replies parsed" in comparison_table([row])
    [other] = compare([poisoned["random-safe"]], [poisoned["greedy"]])
    assert (other.not_playing, "does not play" in comparison_table([other])) == ((), False)


@pytest.mark.parametrize(("unreadable", "truncated", "expected"), [(0.0, 0.0, True), (0.5, 0.0, True), (0.3, 0.3, False)])
def test_a_player_plays_if_half_of_its_replies_are_parsed(unreadable: float, truncated: float, expected: bool) -> None:
    assert plays({"unreadable_rate": unreadable, "truncated_rate": truncated}) == expected


def test_normalised_is_0_for_random_play_and_1_for_the_reference(poisoned: dict[str, Result]) -> None:
    for result in poisoned.values():
        ends, summary = result.summary["references"], result.summary
        assert {*ends} == {"silent", "random", "planner"}
        expected = (summary["reward"]["mean"] - ends["random"]) / (ends["planner"] - ends["random"])
        assert summary["normalised"] == pytest.approx(expected)
