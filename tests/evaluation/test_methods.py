"""Two methods are compared over training seeds; checkpoints and their episodes are not enough."""

from __future__ import annotations

import json
import shutil
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.cli import main
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.comparison import compare_methods, compare_seeds, methods_table, smallest_p
from msgrpo_hub.evaluation.results import run_hash
from tests.stored import stored_runs

LAKE = "FrozenLake-NotSlippery-v1"


def test_p_is_the_share_of_all_deals_with_means_as_far_apart() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        a, b = rng.integers(0, 4, 3).astype(float), rng.integers(0, 5, 4).astype(float)
        far = abs(a.mean() - b.mean())
        deals = [(np.mean(deal[:3]), np.mean(deal[3:])) for deal in permutations([*a, *b])]
        assert compare_seeds(LAKE, a, b).p == pytest.approx(np.mean([abs(x - y) >= far - 1e-9 for x, y in deals]))
    assert compare_seeds(LAKE, np.zeros(10), np.ones(10)).p < 1e-3  # 184,756 deals: 20,000 are sampled


def test_equal_methods_get_a_verdict_in_at_most_one_of_20_comparisons() -> None:
    rng = np.random.default_rng(1)
    found = [compare_seeds(LAKE, *rng.normal(size=(2, 4))).p < 0.05 for _ in range(200)]
    assert np.mean(found) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)


def test_three_seeds_can_give_no_verdict_however_far_apart_and_the_table_says_so() -> None:
    far = compare_seeds(LAKE, np.array([0.0, 0.01, 0.02]), np.array([0.97, 0.98, 0.99]))
    assert (far.p, far.verdict) == (smallest_p(3, 3), "inconclusive")
    assert "so few can give no verdict" in methods_table([far])
    enough = compare_seeds(LAKE, np.arange(5) / 100, 0.9 + np.arange(5) / 100)
    assert enough.verdict == "better"
    assert "so few" not in methods_table([enough])
    assert "0.900 0.910 0.920 0.930 0.940" in methods_table([enough])


def seeds(folder: Path, player: str, count: int) -> Path:
    """Results of a player as those of several checkpoints, which differ in the commit of their weights."""
    [run] = stored_runs(player).glob(f"*/{LAKE}/*")
    for seed in range(count):
        config = json.loads((run / "config.lock.json").read_text())
        config["identity"]["adapter_commit"] = f"{player}-{seed}"
        copy = Path(shutil.copytree(run, folder / f"seed-{seed}" / run_hash(config)))
        (copy / "config.lock.json").write_text(json.dumps(config))
    return folder


def test_the_command_compares_folders_of_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = seeds(tmp_path / "a", "random", 5), seeds(tmp_path / "b", "pocket", 5)
    main(["compare", str(first), str(second), "--methods", "--json"])
    [row] = json.loads(capsys.readouterr().out)
    assert (row["task"], len(row["first"]), len(row["second"]), row["verdict"]) == (LAKE, 5, 5, "better")
    assert row["p"] == pytest.approx(smallest_p(5, 5))
    main(["compare", str(first), str(second), "--methods"])
    assert f"{LAKE}  0.015 0.015" in capsys.readouterr().out


def test_too_few_seeds_and_the_same_checkpoint_twice_are_refused(tmp_path: Path) -> None:
    few, enough = seeds(tmp_path / "few", "random", 2), seeds(tmp_path / "enough", "pocket", 3)
    with pytest.raises(UserError, match=r"2 checkpoints on .*: expected one per training seed, at least 3"):
        compare_methods(few, enough)
    shutil.copytree(enough / "seed-0", enough / "again")
    with pytest.raises(UserError, match="two runs of one checkpoint"):
        compare_methods(seeds(tmp_path / "three", "random", 3), enough)


def changed(folder: Path, seed: int, **fields: object) -> None:
    """Changes fields in the identity of a seed's result; None removes one."""
    [run] = (folder / f"seed-{seed}").iterdir()
    config = json.loads((run / "config.lock.json").read_text())
    identity = {**config["identity"], **fields}
    config["identity"] = {field: value for field, value in identity.items() if value is not None}
    (run / "config.lock.json").write_text(json.dumps(config))
    run.rename(run.with_name(run_hash(config)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"temperature": 0.9}, r"differ in temperature \(.* and 0\.9\)"),
        ({"top_k": 5}, r"differ in top_k \(none and 5\)"),
        ({"base_commit": "another"}, "differ in base_commit"),
        ({"adapter_commit": None}, r"differ in a trained adapter \(True and False\)"),
        ({"adapter_commit": "pocket-0", "torch": "another"}, "two runs of one checkpoint"),
    ],
)
def test_what_differs_in_more_than_the_training_seed_is_no_seed_of_a_method(
    fields: dict[str, object], said: str, tmp_path: Path
) -> None:
    first, second = seeds(tmp_path / "a", "random", 3), seeds(tmp_path / "b", "pocket", 3)
    changed(second, 2, **fields)
    with pytest.raises(UserError, match=said):
        compare_methods(first, second)


def test_a_checkpoint_that_was_evaluated_elsewhere_is_a_seed_like_another(tmp_path: Path) -> None:
    first, second = seeds(tmp_path / "a", "random", 3), seeds(tmp_path / "b", "pocket", 3)
    changed(second, 2, torch="another", device="cuda", adapter="you/seed-2")
    [row] = compare_methods(first, second)
    assert len(row.second) == 3


def test_a_checkpoint_that_lacks_a_task_is_named(tmp_path: Path) -> None:
    first, second = seeds(tmp_path / "a", "random", 3), seeds(tmp_path / "b", "pocket", 3)
    [run] = stored_runs("pocket").glob("*/FrozenLake-Slippery-v1/*")
    config = json.loads((run / "config.lock.json").read_text())
    config["identity"]["adapter_commit"] = "pocket-0"
    copy = Path(shutil.copytree(run, second / "more" / run_hash(config)))
    (copy / "config.lock.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="has not played FrozenLake-Slippery-v1: expected one suite"):
        compare_methods(first, second)


def test_seeds_that_all_score_the_same_have_no_interval() -> None:
    equal = compare_seeds(LAKE, np.zeros(5), np.ones(5))
    assert equal.interval is None
    assert equal.verdict == "better"
    assert "+1.000 (no interval)" in methods_table([equal])
