"""The figure of several seeds: what is in it, as PNG and as SVG."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from msgrpo_hub.evaluation.over_seeds import over_seeds
from msgrpo_hub.rendering.seed_curves import SeedLines, apart, mean_line, plot_seed_curves

pytestmark = pytest.mark.filterwarnings("error")


def lines(name: str, gain: float, seeds: int = 4, updates: int = 40) -> SeedLines:
    rng = np.random.default_rng(len(name))
    x = np.arange(1.0, updates + 1)
    curves = {seed: (x, gain * x / updates + 0.05 * rng.standard_normal(updates)) for seed in range(seeds)}
    return SeedLines(
        name=name,
        game="Snake-Solo-v1",
        training=curves,
        validation={seed: (x[9::10], y[9::10] + 0.05) for seed, (x, y) in curves.items()},
        test={seed: float(y[-1]) for seed, (_, y) in curves.items()},
        references={"random": 0.1, "greedy": 1.5},
    )


def svg(folder: Path, *variants: SeedLines, x_label: str = "updates") -> str:
    plot_seed_curves(variants, folder / "curves.svg", x_label=x_label, kind="svg")
    return (folder / "curves.svg").read_text()


def texts(drawn: str) -> str:
    """The texts of an SVG, which stand in it as comments beside their outlines."""
    return " ".join(re.findall(r"<!-- (.*?) -->", drawn, re.DOTALL))


def test_the_figure_is_a_png_or_an_svg_and_the_same_for_the_same_runs(tmp_path: Path) -> None:
    for kind, begin in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        plot_seed_curves([lines("aaw", 1.0)], tmp_path / "one", x_label="updates", kind=kind)
        plot_seed_curves([lines("aaw", 1.0)], tmp_path / "two", x_label="updates", kind=kind)
        assert (tmp_path / "one").read_bytes().startswith(begin)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_it_names_the_game_the_axes_every_variant_and_the_references(tmp_path: Path) -> None:
    drawn = texts(svg(tmp_path, lines("aaw", 1.0), lines("uniform", 0.6), x_label="seconds of acting and training"))
    said = ["Snake-Solo-v1", "Training", "Validation", "Test", "seconds of acting and training", "mean reward of an episode"]
    for text in [*said, "aaw", "uniform", "random", "greedy", str(over_seeds(lines("aaw", 1.0).test))]:
        assert text in drawn, text


def test_references_that_coincide_share_a_label(tmp_path: Path) -> None:
    both = replace(lines("aaw", 1.0), references={"random": 0.1, "base": 0.12, "greedy": 1.5})
    drawn = re.findall(r"<!-- (.*?) -->", svg(tmp_path, both))
    assert "random, base" in drawn
    assert "greedy" in drawn


def test_references_are_named_beside_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: drawn.append(self))
    low = replace(lines("aaw", 1.0), references={"silent": 0.0, "random": 0.01, "base": 0.02}, test={0: 0.02, 1: 0.03})
    plot_seed_curves([low], "never.png", x_label="updates")
    drawn[0].draw_without_rendering()
    axis = drawn[0].axes[-1]
    [label] = [text for text in axis.texts if "silent" in text.get_text()]
    points = [point for line in axis.lines if line.get_marker() == "o" for point in axis.transData.transform(line.get_xydata())]
    assert len(points) == 2
    assert label.get_window_extent().x1 < min(x for x, _ in points)


def test_every_seed_has_a_line_and_every_test_result_a_dot(tmp_path: Path) -> None:
    whole = svg(tmp_path, lines("aaw", 1.0))
    for part in ("training", "validation", "test"):
        three = replace(lines("aaw", 1.0), **{part: dict([*getattr(lines("aaw", 1.0), part).items()][:3])})
        assert svg(tmp_path, three) != whole, part


def test_the_mean_is_over_all_seeds_as_far_as_all_of_them_are() -> None:
    short, long = (np.array([1.0, 2.0]), np.array([0.0, 1.0])), (np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 9.0]))
    x, means = mean_line([short, long, long], None)
    assert x.tolist() == [1.0, 2.0]
    assert means == [over_seeds({0: 0.0, 1: 2.0, 2: 2.0}), over_seeds({0: 1.0, 1: 3.0, 2: 3.0})]


def test_seeds_of_other_seconds_are_joined_between_their_points() -> None:
    quick, slow = (np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])), (np.array([2.0, 4.0]), np.array([0.0, 2.0]))
    x, means = mean_line([quick, slow], None)
    assert x.tolist() == [2.0, 3.0]
    assert [mean.by_seed for mean in means] == [{0: 2.0, 1: 0.0}, {0: 3.0, 1: 1.0}]


def test_runs_that_do_not_overlap_have_no_mean(tmp_path: Path) -> None:
    early, late = (np.array([1.0, 2.0]), np.array([0.0, 1.0])), (np.array([3.0, 4.0]), np.array([2.0, 3.0]))
    x, means = mean_line([early, late], None)
    assert (x.tolist(), means) == ([], [])
    svg(tmp_path, replace(lines("aaw", 1.0), training={0: early, 1: late}))


def test_runs_without_validation_or_test_one_update_and_many_variants_are_drawn(tmp_path: Path) -> None:
    svg(tmp_path, replace(lines("aaw", 1.0), validation={}, test={}))
    svg(tmp_path, lines("aaw", 1.0, seeds=1, updates=1))
    svg(tmp_path, *(lines(f"learning_rate {rate}", 1.0) for rate in range(9)))


def test_labels_move_as_little_as_keeps_their_distance_and_stay_in_the_axes() -> None:
    assert apart([0.2, 0.5], 0.1) == pytest.approx([0.2, 0.5])
    moved = apart([0.6, 0.6, 0.97, 0.98], 0.1)
    assert moved == pytest.approx([0.55, 0.65, 0.85, 0.95])


def test_no_update_is_an_error() -> None:
    with pytest.raises(ValueError, match="no updates to draw"):
        plot_seed_curves([replace(lines("aaw", 1.0), training={}, validation={}, test={})], "never.png", x_label="updates")
