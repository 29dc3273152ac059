"""The curves: one PNG, whatever a run has logged so far."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from pathlib import Path

import matplotlib.image
import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.figure import Figure

from msgrpo_hub.rendering.curves import plot_curves, rolling_mean

KEYS = [
    *("reward", "success", "zero_variance_groups", "unreadable_rate", "truncated_rate", "illegal_rate"),
    *("entropy", "kl", "gradient_norm", "seconds_acting", "seconds_training"),
]

pytestmark = pytest.mark.filterwarnings("error")


def logged(updates: int) -> list[dict[str, float]]:
    values = np.random.default_rng(0).random((updates, len(KEYS))).tolist()
    metrics = [{"update": float(i), **dict(zip(KEYS, row, strict=True))} for i, row in enumerate(values, start=1)]
    for metric in metrics[4::5]:
        metric |= {"validation_reward": 0.5, "validation_success": 0.5}
    return metrics


def drawn(metrics: list[dict[str, float]], folder: Path) -> npt.NDArray[np.float32]:
    plot_curves(metrics, folder / "curves.png")
    return np.asarray(matplotlib.image.imread(folder / "curves.png"))


@pytest.mark.lowest
def test_the_picture_is_a_png_of_one_size_and_the_same_for_the_same_metrics(tmp_path: Path) -> None:
    first = drawn(logged(30), tmp_path)
    assert first.shape[:2] == (990, 1800)
    assert np.array_equal(drawn(logged(30), tmp_path), first)


def test_every_metric_is_in_the_picture(tmp_path: Path) -> None:
    metrics = logged(10)
    whole = drawn(metrics, tmp_path)
    for key in [*KEYS, "validation_reward", "validation_success"]:
        without = [{name: value for name, value in metric.items() if name != key} for metric in metrics]
        assert not np.array_equal(drawn(without, tmp_path), whole), key


def test_one_update_zeros_and_values_that_are_no_numbers_are_drawn(tmp_path: Path) -> None:
    drawn(logged(1), tmp_path)
    drawn([{"update": float(i), **dict.fromkeys(KEYS, 0.0)} for i in range(1, 4)], tmp_path)
    drawn([*logged(5), {"update": 6.0, **dict.fromkeys(KEYS, float("nan"))}], tmp_path)
    drawn([*logged(5), {"update": 6.0, **dict.fromkeys(KEYS, float("inf"))}], tmp_path)


def figure(metrics: list[dict[str, float]], monkeypatch: pytest.MonkeyPatch) -> Figure:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: drawn.append(self))
    plot_curves(metrics, "never.png")
    drawn[0].draw_without_rendering()
    return drawn[0]


def test_what_is_never_negative_is_drawn_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = figure([{"update": float(i), **dict.fromkeys(KEYS, 0.0)} for i in range(1, 4)], monkeypatch)
    assert [axis.get_ylim() for axis in zeros.axes if axis.get_ylabel()] == [(0, 1)] * 4


def test_the_names_of_two_scales_do_not_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    small = figure(
        [{name: value if name == "update" else value / 3_000 for name, value in line.items()} for line in logged(9)], monkeypatch
    )
    names = [axis.yaxis.label.get_window_extent() for axis in small.axes if axis.get_ylabel()]
    assert not [pair for pair in combinations(names, 2) if pair[0].overlaps(pair[1])]


def test_no_update_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no updates to draw"):
        plot_curves([], tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()


def test_drawing_leaves_a_users_own_plots_alone() -> None:
    code = "import msgrpo_hub.rendering.curves, sys; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_part_that_was_taught_is_shaded_and_the_curves_begin_after_it(tmp_path: Path) -> None:
    """A window that reaches into the taught part counts what was played alone."""
    metrics = logged(40)
    for line in metrics[:20]:
        for key in KEYS[:8]:
            del line[key]
    plain = drawn(metrics, tmp_path)
    shaded = drawn([*({**line, "teacher_reward": 1.0} for line in metrics[:20]), *metrics[20:]], tmp_path)
    assert not np.array_equal(plain, shaded)
    values = np.array([np.nan] * 20 + [1.0, 3.0] + [2.0] * 18)
    assert rolling_mean(values)[19:23].tolist() == pytest.approx([np.nan, 1.0, 2.0, 2.5], nan_ok=True)
