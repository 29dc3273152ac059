"""Variants: which runs belong together, and their figures over training seeds."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.over_seeds import method_interval, over_seeds
from msgrpo_hub.training.seed_lines import seed_lines
from msgrpo_hub.training.seed_sets import data_of, figures, find_variants, siblings
from msgrpo_hub.training.seed_table import seed_table
from tests.training.seed_runs import LAKE, SNAKE, rewards, write_run, write_set


@pytest.fixture(scope="module")
def snakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two variants of four and three seeds."""
    folder = tmp_path_factory.mktemp("snakes")
    write_set(folder / "aaw", 4, game=SNAKE)
    write_set(folder / "uniform", 3, game=SNAKE, sampler="uniform", gain=0.2)
    return folder


def test_the_curves_of_runs_of_several_games_are_those_of_the_first_as_their_test_and_bounds_are(tmp_path: Path) -> None:
    write_set(tmp_path / "both", 3, game=f"{LAKE},{SNAKE}")
    write_set(tmp_path / "one", 3, game=LAKE)
    both, one = (seed_lines(variant) for variant in find_variants([tmp_path / "both", tmp_path / "one"]))
    for seed in range(3):
        assert both.training[seed][1].tolist() == one.training[seed][1].tolist()
        assert both.validation[seed][1].tolist() == one.validation[seed][1].tolist()
    assert (both.test, both.bounds) == (one.test, one.bounds)
    assert both.game == f"{LAKE} (of several games)"


def test_a_folder_of_seeds_is_a_variant_with_the_name_of_the_folder(snakes: Path) -> None:
    assert [(variant.name, [*variant.runs]) for variant in find_variants([snakes])] == [
        ("aaw", [0, 1, 2, 3]),
        ("uniform", [0, 1, 2]),
    ]
    assert [variant.name for variant in find_variants([snakes / "uniform"])] == ["uniform"]


def test_variants_of_one_name_and_one_configuration_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    write_set(tmp_path / "runs" / "lake", 3, game=LAKE)
    write_run(tmp_path / "old" / "lake", 0, game=LAKE)
    names = [variant.name for variant in find_variants([tmp_path / "runs" / "lake", tmp_path / "old" / "lake"])]
    assert len({*names}) == 2
    assert all(name.startswith("lake") for name in names)


def test_other_runs_are_grouped_by_the_settings_that_differ(tmp_path: Path) -> None:
    for beta, seed in ((0.0, 0), (0.5, 0), (0.0, 1), (0.5, 2)):
        write_run(tmp_path / f"{beta}-{seed}", seed, beta=beta, threads=seed)
    variants = {variant.name: [*variant.runs] for variant in find_variants([tmp_path])}
    assert variants == {"beta 0.0": [0, 1], "beta 0.5": [0, 2]}
    assert [variant.name for variant in find_variants([tmp_path / "0.0-0", tmp_path / "0.0-0"])] == ["0.0-0"]


def test_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for above in ("a", "b"):
        write_set(tmp_path / above / "lake", 1)
    assert [variant.name for variant in find_variants([tmp_path])] == ["a/lake", "b/lake"]


def test_two_runs_of_one_seed_and_folders_without_runs_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run: expected the output of `msgrpo train`"):
        find_variants([tmp_path])
    write_run(tmp_path / "one", 3)
    write_run(tmp_path / "two", 3)
    with pytest.raises(UserError, match="two runs of seed 3 with the same settings"):
        find_variants([tmp_path])


def test_the_interval_of_a_variant_is_that_of_the_method_over_its_seeds(snakes: Path) -> None:
    variant = find_variants([snakes])[0]
    found, values = figures(variant.finished)[SNAKE]["reward"], rewards(snakes / "aaw")
    assert [*found.by_seed.values()] == values
    assert len({*values}) > 1
    assert found.interval == method_interval(values)
    assert (found.mean, found.std) == (np.mean(values), np.std(values, ddof=1))


def test_fewer_than_3_seeds_have_no_interval_and_no_interval_leaves_the_possible_returns() -> None:
    assert over_seeds({0: 0.5}).std is None
    assert over_seeds({0: 0.5, 1: 0.7}).interval is None
    free, bound = over_seeds({0: 0.9, 1: 1.0, 2: 1.0}), over_seeds({0: 0.9, 1: 1.0, 2: 1.0}, (0.0, 1.0))
    assert free.interval
    assert bound.interval
    assert bound.interval.high == 1.0 < free.interval.high
    assert bound.interval.low == free.interval.low


def test_the_table_has_a_line_per_variant_and_the_players_that_training_does_not_change(snakes: Path) -> None:
    title, head, _, *lines = seed_table(find_variants([snakes])).splitlines()
    assert title == f"{SNAKE}, 12 test episodes per run; means over training seeds with 95 % intervals over the seeds"
    assert head.split() == [
        "seeds",
        *["reward", "std", "worst", "best", "greedy"],
        *["success", "std", "worst", "best", "greedy"],
    ]
    assert [line.split()[0] for line in lines] == ["random", "aaw", "uniform", "greedy"]
    values = rewards(snakes / "aaw")
    interval = method_interval(values)
    shown = f"4 {np.mean(values):.3f} {interval} {np.std(values, ddof=1):.3f} {min(values):z.3f} {max(values):z.3f}"
    assert shown in " ".join(lines[1].split())


def test_where_reward_is_success_the_table_has_it_once(tmp_path: Path) -> None:
    write_set(tmp_path / "lake", 2)
    title, head, *_, last = seed_table(find_variants([tmp_path])).splitlines()
    assert title.startswith(LAKE)
    assert head.split() == ["seeds", "reward", "=", "success", "std", "worst", "best", "greedy"]
    assert last == "lake: an interval needs 3 finished seeds"


def test_a_run_that_is_not_finished_is_named_and_in_no_figure(tmp_path: Path) -> None:
    write_set(tmp_path / "lake", 3)
    write_run(tmp_path / "lake" / "seed-3", 3, done=7)
    [variant] = find_variants([tmp_path])
    assert [*figures(variant.finished)[LAKE]["reward"].by_seed] == [0, 1, 2]
    assert seed_table([variant]).splitlines()[-1] == "lake, seed 3: 7 of 20 updates"
    assert data_of(variant)["runs"][3] == {"folder": "seed-3", "updates": 7, "finished": False}


def test_the_data_of_a_variant_are_json_with_every_seed(snakes: Path) -> None:
    data = json.loads(json.dumps(data_of(find_variants([snakes])[0])))
    reward = data["players"]["adapter"][SNAKE]["reward"]
    assert [*reward["by_seed"].values()] == rewards(snakes / "aaw")
    assert reward["interval"][0] < reward["mean"] < reward["interval"][1]
    assert data["settings"]["sampler"] == "absolute-advantage"
    assert "seed" not in data["settings"]
    assert not any(math.isnan(value) for value in reward["by_seed"].values())


def test_the_siblings_of_a_run_differ_from_it_in_their_seed_alone(snakes: Path, tmp_path: Path) -> None:
    assert [*siblings(snakes / "aaw" / "seed-2")] == [0, 1, 2, 3]
    assert siblings(write_run(tmp_path / "alone", 0)) == {}
    write_set(tmp_path / "set", 2)
    write_run(tmp_path / "set" / "seed-2", 2, beta=0.5)
    write_run(tmp_path / "set" / "seed-3", 3, done=4)
    assert [*siblings(tmp_path / "set" / "seed-0")] == [0, 1]
    assert siblings(tmp_path / "set" / "seed-2") == {}
