"""Training with several seeds: each run equals a run alone; figures, table and curves over seeds."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from msgrpo_hub.cli import main, parse
from msgrpo_hub.cli.training import train_config
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.statistics import method_interval
from msgrpo_hub.training import run
from msgrpo_hub.training.config import TrainConfig, stored_config
from msgrpo_hub.training.seeds import data_of, figures, find_variants, seed_lines, seed_table, siblings
from msgrpo_hub.training.summary import read_summary
from tests.files import hashes
from tests.training.runs import assert_same_run
from tests.training.seed_runs import LAKE, SNAKE, rewards, write_run, write_set

if TYPE_CHECKING:
    from tests.command import Command


@pytest.fixture(scope="module")
def snakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("snakes")
    write_set(folder / "aaw", 4, game=SNAKE)
    write_set(folder / "uniform", 3, game=SNAKE, sampler="uniform", gain=0.2)
    return folder


def test_a_folder_of_seeds_is_a_variant_and_any_other_run_is_one(snakes: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run: expected the output of `msgrpo train`"):
        find_variants([tmp_path])
    write_run(tmp_path / "alone", 3)
    found = {Path(variant.name).name: [*variant.runs] for variant in find_variants([snakes, tmp_path / "alone", tmp_path])}
    assert found == {"aaw": [0, 1, 2, 3], "uniform": [0, 1, 2], "alone": [3]}
    for above in ("a", "b"):
        write_set(tmp_path / "sets" / above / "lake", 1)
    assert [variant.name for variant in find_variants([tmp_path / "sets"])] == ["a/lake", "b/lake"]
    write_run(tmp_path / "sets" / "a" / "lake" / "seed-1", 1, beta=0.5)
    with pytest.raises(UserError, match="holds runs that differ in more than their seed"):
        find_variants([tmp_path / "sets"])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *(
            ("reward", 1e300, "1e.300 in update 2 of .*metrics.jsonl'"),
            ("reward", None, "= None in update 2 of .*expected"),
        ),
        *(("validation_reward", float("nan"), "validation_reward = nan"), ("success", 7.0, "expected at most 1")),
        ("seconds_acting", -1.0, "expected at least 0"),
    ],
)
def test_metrics_that_no_run_has_are_not_drawn(name: str, value: float | None, words: str, tmp_path: Path) -> None:
    file = write_run(tmp_path / "run", 0) / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[1][name] = value
    if value is None:
        del lines[1][name]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UserError, match=words):
        find_variants([tmp_path])


def test_the_siblings_of_a_run_differ_from_it_in_their_seed_only(snakes: Path, tmp_path: Path) -> None:
    assert [*siblings(snakes / "aaw" / "seed-2")] == [0, 1, 2, 3]
    assert siblings(write_run(tmp_path / "alone", 0)) == {}
    write_set(tmp_path / "set", 2)
    write_run(tmp_path / "set" / "seed-2", 2, beta=0.5)
    write_run(tmp_path / "set" / "seed-3", 3, done=4)
    assert [*siblings(tmp_path / "set" / "seed-0")] == [0, 1]
    assert siblings(tmp_path / "set" / "seed-2") == {}


def test_the_table_and_the_data_have_the_interval_over_seeds(snakes: Path) -> None:
    variants = find_variants([snakes])
    values = rewards(snakes / "aaw")
    interval = method_interval(values)
    figure = figures(variants[0].finished)[SNAKE]["reward"]
    assert (figure.interval, figure.mean, figure.std) == (interval, np.mean(values), np.std(values, ddof=1))
    title, _, _, *lines = seed_table(variants).splitlines()
    assert title == f"{SNAKE}, 12 test episodes per run; means over training seeds with 95 % intervals over the seeds"
    assert [line.split()[0] for line in lines] == ["random", "aaw", "uniform", "greedy"]
    shown = f"4 {np.mean(values):.3f} {interval} {np.std(values, ddof=1):.3f} {min(values):z.3f} {max(values):z.3f}"
    assert shown in " ".join(lines[1].split())
    data = json.loads(json.dumps(data_of(variants[0])))
    assert [*data["players"]["adapter"][SNAKE]["reward"]["by_seed"].values()] == values


def test_an_unfinished_run_is_named_and_in_no_figure(tmp_path: Path) -> None:
    write_set(tmp_path / "lake", 2)
    write_run(tmp_path / "lake" / "seed-3", 3, done=7)
    idle = tmp_path / "lake" / "seed-1" / "summary.json"
    idle.write_text(idle.read_text().replace('"unreadable_rate": 0.0', '"unreadable_rate": 0.6'))
    [variant] = find_variants([tmp_path])
    assert [*figures(variant.finished)[LAKE]["reward"].by_seed] == [0, 1]
    _, head, *_, not_playing, unfinished, few = seed_table([variant]).splitlines()
    assert head.split()[:4] == ["seeds", "reward", "=", "success"]
    assert not_playing == f"lake, seed 1 does not play {LAKE}: under half of its replies parsed"
    assert (unfinished, few) == ("lake, seed 3: 7 of 20 updates", "lake: an interval needs 3 finished seeds")
    assert data_of(variant)["runs"][3] == {"folder": "seed-3", "updates": 7, "finished": False}


def test_the_curves_of_runs_of_several_games_are_those_of_the_first_game(tmp_path: Path) -> None:
    write_set(tmp_path / "both", 3, game=f"{LAKE},{SNAKE}")
    write_set(tmp_path / "one", 3, game=LAKE)
    both, one = (seed_lines(variant) for variant in find_variants([tmp_path / "both", tmp_path / "one"]))
    for seed in range(3):
        assert both.training[seed][1].tolist() == one.training[seed][1].tolist()
        assert both.validation[seed][1].tolist() == one.validation[seed][1].tolist()
    assert (both.test, both.bounds, both.game) == (one.test, one.bounds, f"{LAKE} (of several games)")


@pytest.mark.parametrize(("x", "last"), [("updates", 20), ("episodes", 20 * 256), ("tokens", 660), ("processor-seconds", 14)])
def test_curves_are_drawn_over_each_measure_and_a_second_call_keeps_the_first_figure(x: str, last: float, tmp_path: Path) -> None:
    write_run(tmp_path / "lake", 1)
    assert seed_lines(find_variants([tmp_path])[0], x).training[1][0][-1] == pytest.approx(last)
    main(["curves", str(tmp_path), "--x", x])
    first = (tmp_path / "seed-curves.png").read_bytes()
    main(["curves", str(tmp_path)])
    assert {path.name for path in tmp_path.glob("*.png")} == {"seed-curves.png", "seed-curves-2.png"}
    assert (tmp_path / "seed-curves.png").read_bytes() == first


def test_several_seeds_and_one_seed_do_not_mix_in_a_folder(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    write_set(tmp_path / "set", 2)
    write_run(tmp_path / "one", 0)
    write_run(tmp_path / "damaged" / "seed-1", 1)
    (tmp_path / "damaged" / "seed-1" / "checkpoint.safetensors").touch()
    before = hashes(tmp_path)
    refused = {
        "holds a run with several seeds (seed-0, seed-1): add --seeds": ["--resume", "--output-dir", tmp_path / "set"],
        "holds a run of one seed: name another --output-dir for several": ["--seeds", "0-2", "--output-dir", tmp_path / "one"],
        "seed-0' already holds a run: continue it with --resume": ["--seeds", "0,7", "--output-dir", tmp_path / "set"],
        "holds a run with ": ["--seeds", "0,7", "--resume", "--output-dir", tmp_path / "set"],
        "seed-0' holds a run with ": ["--seeds", "7", "--output-dir", tmp_path / "set"],
    }
    resume = ["train", "--resume", "--seeds", "0-1", "--output-dir", tmp_path / "damaged"]
    assert f"the checkpoint '{tmp_path}/damaged/seed-1/checkpoint.safetensors' cannot be read" in msgrpo(*resume).err
    for message, arguments in refused.items():
        done = msgrpo("train", *flags, *arguments)
        assert (done.code, len(done.said)) == (2, 1), done.err
        assert message in done.err
    assert hashes(tmp_path) == before


def test_new_seeds_have_the_configuration_of_the_others(tmp_path: Path) -> None:
    write_set(tmp_path / "set", 2, beta=0.5)
    options = parse(["train", "--resume", "--seeds", "5-6", "--output-dir", str(tmp_path / "set")])
    assert replace(train_config(options), seed=0) == stored_config(tmp_path / "set" / "seed-0" / "config.toml")


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        (UserError("no such model"), 2, "error: seed 2: no such model; "),
        (KeyboardInterrupt(signal.SIGTERM), 143, "ended by SIGTERM; finished updates are saved, "),
    ],
)
def test_seeds_that_end_early_say_in_one_line_how_to_continue(
    end: BaseException, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_set(tmp_path / "set", 2)

    def train(config: TrainConfig, output_dir: Path, **_: object) -> dict[str, Any]:
        if config.seed == 2:
            raise end
        return read_summary(output_dir / "summary.json")

    monkeypatch.setattr(run, "train", train)
    with pytest.raises(SystemExit) as ended:
        main(["train", "--resume", "--seeds", "1-4", "--output-dir", str(tmp_path / "set")])
    assert (ended.value.code, capsys.readouterr().err) == (code, f"{said}continue with --resume\n")


@pytest.mark.slow
def test_each_seed_is_bit_for_bit_the_run_that_it_is_alone_and_new_ones_join(
    msgrpo: Command, flags: list[str], finished_run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "set"
    done = msgrpo("train", *flags, "--seeds", "1,0", "--output-dir", folder)
    assert done.code == 0, done.err
    assert "an interval needs 3 finished seeds" in done.out
    assert_same_run(folder / "seed-0", finished_run)
    assert stored_config(folder / "seed-1" / "config.toml").seed == 1
    before = hashes(folder / "seed-1")
    done = msgrpo("train", "--seeds", "0-2", "--resume", "--json", "--output-dir", folder)
    assert done.code == 0, done.err
    assert hashes(folder / "seed-1") == before
    [variant] = json.loads(done.out)
    assert [*variant["runs"]] == ["0", "1", "2"]
