"""Charts: the curves of a run, the chart of a task, and the figure of several seeds."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.figure import Figure

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.statistics import over_seeds
from msgrpo_hub.rendering.charts import count_outcomes, plot_curves, rolling_mean, task_svg
from msgrpo_hub.rendering.seed_curves import SeedLines, mean_line, plot_seed_curves
from tests.rendering.reported import BASE, HOSTILE, of

KEYS = [
    *("reward", "success", "zero_variance_groups", "unreadable_rate", "truncated_rate", "illegal_rate"),
    *("entropy", "kl", "gradient_norm", "seconds_acting", "seconds_training"),
]

pytestmark = pytest.mark.filterwarnings("error")


def logged(updates: int) -> list[dict[str, float]]:
    values = np.random.default_rng(0).random((updates, len(KEYS))).tolist()
    metrics = [{"update": float(i), **dict(zip(KEYS, row, strict=True))} for i, row in enumerate(values, start=1)]
    for metric in metrics[4::5]:
        metric |= {"validation_reward": 0.5, "validation_success": 0.5, "seconds_validating": 0.5}
    return metrics


def drawn(metrics: list[dict[str, float]], folder: Path) -> npt.NDArray[np.float32]:
    plot_curves(metrics, folder / "curves.png")
    return np.asarray(matplotlib.image.imread(folder / "curves.png"))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that a test saves."""
    saved: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **named: (saved.append(self), save(self, *args, **named))[1])
    return saved


def text_of(svg: str) -> list[str]:
    """The text elements of an SVG, which must be XML without a script."""
    assert "<script" not in svg
    return [text.text or "" for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.lowest
def test_equal_metrics_give_equal_curves_of_one_size(tmp_path: Path) -> None:
    first = drawn(logged(30), tmp_path)
    assert first.shape[:2] == (990, 1800)
    assert np.array_equal(drawn(logged(30), tmp_path), first)


def test_every_metric_changes_the_picture(tmp_path: Path) -> None:
    whole = drawn(logged(10), tmp_path)
    plot_curves(logged(10), tmp_path / "x.png", "lake, pocket", {"base": {"reward": 0.25, "success": 0.5}})
    assert not np.array_equal(matplotlib.image.imread(tmp_path / "x.png"), whole)
    for key in (*KEYS, "validation_reward", "validation_success", "seconds_validating"):
        without = [{name: value for name, value in metric.items() if name != key} for metric in logged(10)]
        assert not np.array_equal(drawn(without, tmp_path), whole), key


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_one_update_zeros_and_missing_numbers_are_drawn(value: float, figures: list[Figure], tmp_path: Path) -> None:
    drawn(logged(1), tmp_path)
    drawn([{"update": float(i), **dict.fromkeys(KEYS, value)} for i in range(1, 4)], tmp_path)
    if value == 0:
        assert [axis.get_ylim() for axis in figures[-1].axes if axis.get_ylabel()] == [(0, 1)] * 4


def test_updates_of_sft_are_shaded_and_the_rolling_mean_starts_after_them(tmp_path: Path) -> None:
    metrics = logged(40)
    for line in metrics[:20]:
        for key in KEYS[:8]:
            del line[key]
    shaded = drawn([*({**line, "teacher_reward": 1.0} for line in metrics[:20]), *metrics[20:]], tmp_path)
    assert not np.array_equal(drawn(metrics, tmp_path), shaded)
    values = np.array([np.nan] * 20 + [1.0, 3.0] + [2.0] * 18)
    assert rolling_mean(values)[19:23].tolist() == pytest.approx([np.nan, 1.0, 2.0, 2.5], nan_ok=True)


def test_drawing_leaves_a_users_own_plots_alone() -> None:
    code = "import msgrpo_hub.rendering.charts, sys; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_chart_of_a_task_has_the_figures_of_its_players(report_results: list[Result], figures: list[Figure]) -> None:
    players = [of(report_results, BASE), of(report_results, "optimal")]
    assert {"base", "optimal", "silent"} <= set(text_of(task_svg(players, ["base", "optimal"])))
    reward, endings, replies = figures[0].axes
    summary = players[0].summary["reward"]
    drawn = [list(line.get_xdata()) for line in reward.lines]
    assert [summary["mean"]] in drawn
    assert [summary["low"], summary["high"]] in drawn
    for axis in (endings, replies):
        assert sum(patch.get_width() for patch in axis.patches) == pytest.approx(200)


def test_every_episode_and_every_reply_is_counted(report_results: list[Result]) -> None:
    for result in report_results:
        assert [counts.total() for counts in count_outcomes(result)] == [30, result.summary["steps"]]
    base = of(report_results, BASE)
    replies, steps = count_outcomes(base)[1], [step for episode in base.episodes for step in episode.steps]
    assert replies["unparsed"] == sum(step.completion.text == HOSTILE for step in steps) > 0
    assert replies["truncated"] == sum(step.completion.finish == "length" for step in steps) > 0
    assert replies["illegal"] == sum(step.action is not None and not step.legal for step in steps) > 0


def lines(name: str, gain: float = 1.0, seeds: int = 4, updates: int = 40) -> SeedLines:
    rng = np.random.default_rng(len(name))
    x = np.arange(1.0, updates + 1)
    curves = {seed: (x, gain * x / updates + 0.05 * rng.standard_normal(updates)) for seed in range(seeds)}
    return SeedLines(
        name=name,
        game="Snake-Solo-v1",
        training=curves,
        validation={seed: (x[9::10], y[9::10] + 0.05) for seed, (x, y) in curves.items()},
        test={seed: float(y[-1]) for seed, (_, y) in curves.items()},
        references={"random": 0.1, "base": 0.12, "greedy": 1.5},
    )


def test_the_figure_of_seeds_is_the_same_file_again_and_names_game_axes_variants_and_references(tmp_path: Path) -> None:
    for name, kind in (("one.svg", "svg"), ("two.svg", "svg"), ("x.png", "png")):
        plot_seed_curves([lines("aaw"), lines("uniform", 0.6)], tmp_path / name, x_label="seconds", kind=kind)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    said = " ".join(text_of((tmp_path / "one.svg").read_text()))
    named = {"Snake-Solo-v1", "Training", "Validation", "Test", "seconds", "aaw, 4 seeds", "random 0.10", "greedy 1.50"}
    assert {text for text in (*named, "uniform", str(over_seeds(lines("aaw").test))) if text not in said} == set()


def test_every_seed_has_a_line_and_every_test_result_a_dot(tmp_path: Path, figures: list[Figure]) -> None:
    plot_seed_curves([lines("aaw")], tmp_path / "x", x_label="updates")
    training, validation, test = figures[0].axes
    for axis in (training, validation):
        assert sum(len(line.get_xdata()) > 1 for line in axis.lines) == 5  # four seeds and their mean
    [dots] = [line for line in test.lines if line.get_marker() == "o"]  # around their bar, at 0
    assert (sorted(dots.get_ydata()), round(np.mean(dots.get_xdata()), 9)) == (sorted(lines("aaw").test.values()), 0)


def test_the_mean_of_seeds_covers_the_points_that_all_of_them_have() -> None:
    short, long = (np.array([1.0, 2.0]), np.array([0.0, 1.0])), (np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 9.0]))
    x, means = mean_line([short, long, long], None)
    assert x.tolist() == [1.0, 2.0]
    assert means == [over_seeds({0: 0.0, 1: 2.0, 2: 2.0}), over_seeds({0: 1.0, 1: 3.0, 2: 3.0})]
    quick, slow = (np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])), (np.array([2.0, 4.0]), np.array([0.0, 2.0]))
    x, means = mean_line([quick, slow], None)
    assert (x.tolist(), [mean.by_seed for mean in means]) == ([2.0, 3.0], [{0: 2.0, 1: 0.0}, {0: 3.0, 1: 1.0}])


def test_runs_without_overlap_validation_or_test_one_update_and_many_variants_are_drawn(tmp_path: Path) -> None:
    early, late = (np.array([1.0, 2.0]), np.array([0.0, 1.0])), (np.array([3.0, 4.0]), np.array([2.0, 3.0]))
    assert mean_line([early, late], None)[0].size == 0
    for variants in (
        [replace(lines("aaw"), training={0: early, 1: late})],
        [replace(lines("aaw"), validation={}, test={})],
        [lines("aaw", seeds=1, updates=1)],
        [lines(f"learning_rate {rate}") for rate in range(9)],
    ):
        plot_seed_curves(variants, tmp_path / "x", x_label="updates", kind="svg")


def test_charts_of_nothing_are_errors_and_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no updates to draw"):
        plot_curves([], tmp_path / "x")
    with pytest.raises(UserError, match="nothing to draw"):
        plot_seed_curves([replace(lines("aaw"), training={}, validation={}, test={})], tmp_path / "x", x_label="updates")
    assert not (tmp_path / "x").exists()
