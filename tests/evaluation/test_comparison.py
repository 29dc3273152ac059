"""Comparison of stored players on the same episodes, and of training methods over their training seeds."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.cli import main
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import compare, evaluate
from msgrpo_hub.evaluation.comparison import compare_methods, compare_seeds, smallest_p
from msgrpo_hub.evaluation.paired import Rank, compare_paired, holm
from msgrpo_hub.evaluation.results import Result, find_results, run_hash
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import methods_table, ranks
from tests.evaluation.played import FIRM, SLIPPERY
from tests.evaluation.played import SHORT as SNAKE
from tests.stored import stored_runs

SUITE = Suite(name="mine", tasks=(FIRM, SLIPPERY, SNAKE), episodes=40)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three players on one suite, and others that cannot be compared with them."""
    folder = tmp_path_factory.mktemp("place")
    evaluate(["random", "random-safe", "greedy"], SUITE, folder)
    evaluate("random", replace(SUITE, tasks=("Snake-Solo-v1",), episodes=5), folder / "solo")
    evaluate("greedy", replace(SUITE, tasks=(FIRM,), split="validation"), folder / "validation")
    evaluate("greedy", replace(SUITE, tasks=(FIRM,), episodes=10), folder / "ten")
    (folder / "empty").mkdir()
    return folder


def results(folder: Path) -> dict[str, Result]:
    return {result.task: result for result in find_results(folder)}


def test_two_folders_are_compared_task_by_task_with_holm_over_all_hypotheses(place: Path) -> None:
    compared, back = compare(place / "random", str(place / "greedy")), compare(place / "greedy", place / "random")
    assert [row.task for row in compared] == sorted(SUITE.tasks)
    a, b = results(place / "random"), results(place / "greedy")
    for row, other in zip(compared, back, strict=True):
        first, second = (np.array([score.reward for score in side[row.task].scores]) for side in (a, b))
        assert row.rewards.n == row.success.n == 40
        assert row.rewards.difference == pytest.approx(second.mean() - first.mean()) == -other.rewards.difference
        assert {row.rewards.verdict, other.rewards.verdict} in ({"better", "worse"}, {"inconclusive"})
    verdicts = {row.task: row.rewards.verdict for row in compared}
    assert verdicts[FIRM] == verdicts[SNAKE] == "better"
    hypotheses = [each for row in compared for each in {id(each): each for each in (row.rewards, row.success)}.values()]
    assert [each.p_adjusted for each in hypotheses] == pytest.approx(holm([each.p for each in hypotheses]))
    for row in compare(place / "random", place / "random"):
        assert (row.rewards.difference, row.rewards.p, row.rewards.verdict) == (0, 1, "inconclusive")


def test_pairs_are_made_by_seed_from_the_episodes_that_both_have_played(place: Path) -> None:
    a, b = results(place / "random")[SNAKE], results(place / "greedy")[SNAKE]
    kept = [7, 3, 31, *range(8, 30), 0]
    part = replace(b, episodes=[b.episodes[i] for i in kept], scores=[b.scores[i] for i in kept])
    [row] = compare([a], [part])
    rewards = [[side.scores[i].reward for i in sorted(kept)] for side in (a, b)]
    assert row.rewards.n == len(kept)
    assert row.rewards.difference == pytest.approx(np.mean(rewards[1]) - np.mean(rewards[0]))
    assert row.rewards.correlation == pytest.approx(compare_paired(rewards[0], rewards[1], 0).correlation)
    assert row.rewards.correlation != pytest.approx(compare_paired(rewards[0], rewards[1][::-1], 0).correlation)
    [row] = compare(place / "random", place / "ten")
    assert (row.task, row.rewards.n) == (FIRM, 10)


def test_a_rank_agrees_with_the_verdict_and_a_run_that_lacks_episodes_has_neither(place: Path) -> None:
    random, safe, greedy = (results(place / name)[FIRM] for name in ("random", "random-safe", "greedy"))
    assert ranks([greedy, random]) == [Rank(1, 1), Rank(2, 2)]
    [alone] = compare([random], [safe])
    assert (ranks([random, safe])[0] == Rank(1, 2)) == (alone.rewards.verdict == "inconclusive")
    broken = replace(greedy, summary=greedy.summary | {"complete": False, "failed": 3})
    assert ranks([random, broken]) == [Rank(1, 1), None]
    with pytest.raises(UserError, match=f"greedy on {FIRM} is not complete: without the 3 episodes that failed .* fair sample"):
        compare([random], [broken])


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("", "greedy", r"two runs of FrozenLake-NotSlippery-v1: .*; expected one; give the folder of one player or one run"),
        ("random", "solo", r"no task in common: .*NotSlippery-v1.* against Snake-Solo-v1; expected both sides on one"),
        ("random", "validation", r"no episode in common \(test and validation episodes\); expected two runs on one split"),
        ("random", "empty", r"no runs under '.*empty': expected a folder that `msgrpo eval --output-dir` has filled"),
    ],
)
def test_folders_that_cannot_be_compared_are_refused_in_one_line(first: str, second: str, words: str, place: Path) -> None:
    with pytest.raises(UserError, match=words) as caught:
        compare(place / first, place / second)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("field", "value"), [("task_hash", "0123456789abcdef"), ("harness", 0)])
def test_results_of_different_rules_are_never_mixed(field: str, value: object, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "greedy", tmp_path / "old")
    for file in (tmp_path / "old").rglob("config.lock.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    with pytest.raises(UserError, match=rf"the rules of .* differ \({field} .* and {value}\): play both with the same version"):
        compare(place / "random", tmp_path / "old")


def test_p_is_the_share_of_all_deals_with_means_as_far_apart() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        a, b = rng.integers(0, 4, 3).astype(float), rng.integers(0, 5, 4).astype(float)
        far = abs(a.mean() - b.mean())
        deals = [(np.mean(deal[:3]), np.mean(deal[3:])) for deal in permutations([*a, *b])]
        assert compare_seeds(FIRM, a, b).p == pytest.approx(np.mean([abs(x - y) >= far - 1e-9 for x, y in deals]))
    assert compare_seeds(FIRM, np.zeros(10), np.ones(10)).p < 1e-3  # 184,756 deals: 20,000 are sampled


def test_three_seeds_can_give_no_verdict_however_far_apart_and_the_table_says_so() -> None:
    far = compare_seeds(FIRM, np.array([0.0, 0.01, 0.02]), np.array([0.97, 0.98, 0.99]))
    assert (far.p, far.verdict) == (smallest_p(3, 3), "inconclusive")
    assert "so few can give no verdict" in methods_table([far])
    enough = compare_seeds(FIRM, np.arange(5) / 100, 0.9 + np.arange(5) / 100)
    assert enough.verdict == "better"
    assert "so few" not in methods_table([enough])
    assert "0.900 0.910 0.920 0.930 0.940" in methods_table([enough])
    equal = compare_seeds(FIRM, np.zeros(5), np.ones(5))
    assert (equal.interval, equal.verdict) == (None, "better")
    assert "+1.000 (no interval)" in methods_table([equal])


def checkpoint(player: str, folder: Path, seed: int, task: str = FIRM, **fields: object) -> Path:
    """The stored run of a player as the run of another checkpoint: fields of its identity are changed; None removes one."""
    [run] = stored_runs(player).glob(f"*/{task}/*")
    config = json.loads((run / "config.lock.json").read_text())
    identity = config["identity"] | {"adapter_commit": f"{player}-{seed}"} | fields
    config["identity"] = {field: value for field, value in identity.items() if value is not None}
    copy = Path(shutil.copytree(run, folder / f"seed-{seed}" / run_hash(config)))
    (copy / "config.lock.json").write_text(json.dumps(config))
    return copy


def seeds(folder: Path, player: str, count: int) -> Path:
    for seed in range(count):
        checkpoint(player, folder, seed)
    return folder


def test_the_command_compares_folders_of_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = seeds(tmp_path / "a", "random", 5), seeds(tmp_path / "b", "pocket", 5)
    main(["compare", str(first), str(second), "--methods", "--json"])
    [row] = json.loads(capsys.readouterr().out)
    assert (row["task"], len(row["first"]), len(row["second"]), row["verdict"]) == (FIRM, 5, 5, "better")
    assert row["p"] == pytest.approx(smallest_p(5, 5))
    main(["compare", str(first), str(second), "--methods"])
    assert f"{FIRM}  0.015 0.015" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"temperature": 0.9}, r"differ in temperature \(.* and 0\.9\)"),
        ({"top_k": 5}, r"differ in top_k \(none and 5\)"),
        ({"base_commit": "another"}, "differ in base_commit"),
        ({"adapter_commit": None}, r"differ in a trained adapter \(True and False\)"),
        ({"adapter_commit": "pocket-0", "torch": "another"}, "two runs of one checkpoint"),
        ({"torch": "another", "device": "cuda", "adapter": "you/seed-2"}, ""),  # evaluated elsewhere
    ],
)
def test_checkpoints_of_a_method_differ_only_in_the_training_seed(fields: dict[str, object], said: str, tmp_path: Path) -> None:
    first, second = seeds(tmp_path / "a", "random", 3), seeds(tmp_path / "b", "pocket", 2)
    with pytest.raises(UserError, match=r"2 checkpoints on .*: expected one per training seed, at least 3"):
        compare_methods(first, second)
    checkpoint("pocket", second, 2, **fields)
    if not said:
        assert len(compare_methods(first, second)[0].second) == 3
        return
    with pytest.raises(UserError, match=said):
        compare_methods(first, second)


def test_a_checkpoint_that_lacks_a_task_is_named(tmp_path: Path) -> None:
    first, second = seeds(tmp_path / "a", "random", 3), seeds(tmp_path / "b", "pocket", 3)
    checkpoint("pocket", second, 0, "FrozenLake-Slippery-v1")
    with pytest.raises(UserError, match="has not played FrozenLake-Slippery-v1: expected one suite"):
        compare_methods(first, second)
