"""Running an experiment: nothing runs twice, a kill loses at most one unit, and pages match their rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from filelock import FileLock
from matplotlib.figure import Figure

from benchmark.experiments import __main__ as command
from benchmark.experiments import experiment as experiments
from benchmark.experiments.experiment import PAGE, Experiment, Settings, Values, load, names, read_rows, run, stored, values_of
from msgrpo_hub.errors import UserError


class Squares(Experiment):
    """Squares numbers, and stops at 13."""

    units: dict[str, Settings]

    def __init__(self, folder: Path, *sizes: int) -> None:
        super().__init__("squares", "What is it squared?", folder, folder / "scratch")
        self.units = {f"size{size}": {"size": size} for size in sizes}
        self.ran: list[int] = []

    def run(self, settings: Settings) -> Values:
        assert self.scratch.is_dir()
        if settings["size"] == 13:
            raise KeyboardInterrupt
        self.ran.append(settings["size"])
        return {"square": settings["size"] ** 2}

    def answer(self, rows: Mapping[str, Values]) -> str:
        return "Squares: " + ", ".join(str(values["square"]) for values in rows.values())

    headline = tables = answer

    def figure(self, rows: Mapping[str, Values]) -> Figure:
        drawn = Figure()
        drawn.subplots().plot([values["square"] for values in rows.values()])
        return drawn


def test_a_stored_unit_is_not_run_again_and_a_kill_loses_one_unit(tmp_path: Path) -> None:
    stopped, resumed = Squares(tmp_path, 2, 13, 4), Squares(tmp_path, 2, 4)
    with pytest.raises(KeyboardInterrupt):
        run(stopped, stopped.units)
    assert [*stored(stopped.folder)] == ["size2"]
    run(resumed, resumed.units)
    assert stopped.ran + resumed.ran == [2, 4]
    assert values_of(read_rows(resumed)) == {"size2": {"square": 4}, "size4": {"square": 16}}
    row = stored(resumed.folder)["size4"]
    assert row["settings"] == {"size": 4}
    assert 0 <= row["cpu_seconds"] <= 5
    assert {"cpu", "threads"} <= row["machine"].keys()
    assert {"python", "torch"} <= row["versions"].keys()


def test_a_unit_of_another_process_is_skipped(tmp_path: Path) -> None:
    experiment = Squares(tmp_path, 2, 3)
    experiment.scratch.mkdir(parents=True)
    with FileLock(experiment.scratch / "size2.lock"):
        run(experiment, experiment.units)
    assert experiment.ran == [3]


def test_a_row_of_other_settings_is_refused_and_run_again(tmp_path: Path) -> None:
    experiment = Squares(tmp_path, 2)
    run(experiment, experiment.units)
    experiment.units = {"size2": {"size": 5}}
    with pytest.raises(UserError, match=r"size2 in .*rows\.json has other settings than config\.toml"):
        read_rows(experiment)
    run(experiment, experiment.units)
    assert experiment.ran == [2, 5]


def test_a_page_or_a_figure_of_other_rows_is_stale(tmp_path: Path) -> None:
    experiment = Squares(tmp_path, 2, 3)
    run(experiment, experiment.units)
    experiments.write_page(experiment)
    experiments.check_page(experiment)
    written = experiment.folder / PAGE
    assert "Squares: 4, 9" in written.read_text()
    assert "2 of 2 units have run" in written.read_text()
    rows = experiment.folder / "rows.json"
    rows.write_text(rows.read_text().replace('"square": 4', '"square": 5'))
    with pytest.raises(UserError, match=r"README\.md differs from its rows"):
        experiments.check_page(experiment)
    written.write_text(experiments.page(experiment, read_rows(experiment)))
    with pytest.raises(UserError, match=r"figure\.png was drawn from other rows"):
        experiments.check_page(experiment)


@pytest.mark.parametrize("name", names())
def test_the_page_of_every_experiment_matches_its_rows_and_its_figure_fits_on_a_phone(name: str) -> None:
    # A page leaves about 330 of a phone's 390 pixels to a figure: then words of 8 points have 7 pixels
    experiment = load(name)
    experiments.check_page(experiment)
    assert experiment.figure(values_of(read_rows(experiment))).get_figwidth() <= 5.2


def test_a_pattern_runs_some_units_and_the_page_has_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Squares(tmp_path, 2, 3, 31)
    monkeypatch.setattr(command, "load", {"squares": experiment}.__getitem__)
    command.main(["run", "squares/size3*"])
    assert experiment.ran == [3, 31]
    assert "2 of 3 units have run" in (experiment.folder / PAGE).read_text()
    command.main(["run", "squares/size31"])
    assert experiment.ran == [3, 31], "a stored unit is not run again"
    command.main(["again", "squares/size31"])
    assert experiment.ran == [3, 31, 31], "except on demand"
    with pytest.raises(UserError, match="unknown unit of squares 'size4': did you mean"):
        command.main(["run", "squares/size4"])
    with pytest.raises(UserError, match="again without a name"):
        command.main(["again"])
    with pytest.raises(UserError, match="did you mean 'selection'"):
        load("selections")
