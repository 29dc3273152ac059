"""Running an experiment: what has run is not run again, a kill loses one unit, and pages are those of their raw results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from matplotlib.figure import Figure
from PIL import Image

from benchmark.experiments import __main__ as command
from benchmark.experiments import experiment as experiments
from benchmark.experiments import page
from benchmark.experiments.experiment import Experiment, Settings, Values
from benchmark.experiments.rows import read_rows, run, stored, values_of
from msgrpo_hub.errors import UserError


def squares(*sizes: int) -> tuple[Experiment, list[int]]:
    """An experiment that squares numbers, and the numbers that it was run with; it stops at 13."""
    ran: list[int] = []

    def square(settings: Settings, scratch: Path) -> Values:
        assert scratch.is_dir()
        if settings["size"] == 13:
            raise KeyboardInterrupt
        ran.append(settings["size"])
        return {"square": settings["size"] ** 2}

    def answer(rows: Mapping[str, Values]) -> str:
        return "Squares: " + ", ".join(str(values["square"]) for values in rows.values())

    def figure(rows: Mapping[str, Values]) -> Figure:
        drawn = Figure()
        drawn.subplots().plot([values["square"] for values in rows.values()])
        return drawn

    units = {f"size{size}": {"size": size} for size in sizes}
    return Experiment(
        question="What is it squared?", units=units, run=square, headline=answer, answer=answer, tables=answer, figure=figure
    ), ran


def test_a_row_that_is_there_is_not_run_again_and_a_kill_loses_one_unit(tmp_path: Path) -> None:
    stopped, ran = squares(2, 13, 4)
    with pytest.raises(KeyboardInterrupt):
        run("squares", stopped, tmp_path, tmp_path / "scratch")
    assert [*stored(tmp_path)] == ["size2"]
    resumed = replace(stopped, units={name: unit for name, unit in stopped.units.items() if name != "size13"})
    run("squares", resumed, tmp_path, tmp_path / "scratch")
    assert ran == [2, 4]
    assert values_of(read_rows(resumed, tmp_path)) == {"size2": {"square": 4}, "size4": {"square": 16}}


def test_a_row_tells_its_settings_its_processor_time_and_its_machine(tmp_path: Path) -> None:
    experiment, _ = squares(3)
    run("squares", experiment, tmp_path, tmp_path / "scratch")
    row = stored(tmp_path)["size3"]
    assert row["settings"] == {"size": 3}
    assert 0 <= row["cpu_seconds"] <= 5
    assert {"cpu", "threads"} <= row["machine"].keys()
    assert {"python", "torch"} <= row["versions"].keys()


def test_a_unit_that_another_process_runs_is_left_to_it(tmp_path: Path) -> None:
    experiment, ran = squares(2, 3)
    (tmp_path / "scratch").mkdir()
    with FileLock(tmp_path / "scratch" / "size2.lock"):
        run("squares", experiment, tmp_path, tmp_path / "scratch")
    assert ran == [3]


def test_a_row_of_other_settings_is_refused_and_run_again(tmp_path: Path) -> None:
    experiment, ran = squares(2)
    run("squares", experiment, tmp_path, tmp_path / "scratch")
    changed = replace(experiment, units={"size2": {"size": 5}})
    with pytest.raises(UserError, match=r"size2 in .*rows\.json has other settings than config\.toml"):
        read_rows(changed, tmp_path)
    run("squares", changed, tmp_path, tmp_path / "scratch")
    assert ran == [2, 5]


def test_a_page_or_a_figure_that_is_not_that_of_its_raw_results_is_found(tmp_path: Path) -> None:
    experiment, _ = squares(2, 3)
    run("squares", experiment, tmp_path, tmp_path / "scratch")
    page.write("squares", experiment, tmp_path)
    page.check("squares", experiment, tmp_path)
    assert "Squares: 4, 9" in (tmp_path / page.PAGE).read_text()
    assert "2 of 2 units have run" in (tmp_path / page.PAGE).read_text()
    row = tmp_path / "rows.json"
    row.write_text(row.read_text().replace('"square": 4', '"square": 5'))
    with pytest.raises(UserError, match=r"README\.md is not what its raw results give"):
        page.check("squares", experiment, tmp_path)
    (tmp_path / page.PAGE).write_text(page.page("squares", experiment, read_rows(experiment, tmp_path)))
    with pytest.raises(UserError, match=r"figure\.png was drawn from other raw results"):
        page.check("squares", experiment, tmp_path)


@pytest.mark.parametrize("name", experiments.names())
def test_the_page_and_the_figure_of_every_experiment_are_what_its_raw_results_give(name: str) -> None:
    page.check(name, experiments.load(name), experiments.HERE / name)


@pytest.mark.parametrize("name", experiments.names())
def test_a_figure_is_narrow_enough_for_its_words_to_be_read_on_a_phone(name: str) -> None:
    """Words of 8 points have 7 pixels on a screen of 390, of which a page leaves a figure about 330."""
    picture = experiments.HERE / name / page.FIGURE
    if picture.exists():
        with Image.open(picture) as drawn:
            assert drawn.width <= 5.2 * 150  # inches, at the resolution in which they are saved


def test_an_unknown_experiment_is_one_line() -> None:
    with pytest.raises(UserError, match="did you mean 'selection'"):
        experiments.load("selections")


def test_a_pattern_runs_some_units_and_the_page_is_that_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment, ran = squares(2, 3, 31)
    monkeypatch.setattr(command, "load", {"squares": experiment}.__getitem__)
    monkeypatch.setattr(command, "HERE", tmp_path)
    monkeypatch.setattr("benchmark.experiments.rows.SCRATCH", tmp_path / "scratch")
    command.main(["run", "squares/size3*"])
    assert ran == [3, 31]
    assert "2 of 3 units have run" in (tmp_path / "squares" / page.PAGE).read_text()
    command.main(["run", "squares/size31"])
    assert ran == [3, 31], "what has run is not run again"
    command.main(["again", "squares/size31"])
    assert ran == [3, 31, 31], "unless it is asked for"
    with pytest.raises(UserError, match="unknown unit of squares 'size4': did you mean"):
        command.main(["run", "squares/size4"])
    with pytest.raises(UserError, match="again without a name"):
        command.main(["again"])
