"""Which metric announces that training will collapse, and how many updates ahead?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmark.experiments.arms import arms_of, compare_arms
from benchmark.experiments.collapse.prediction import Run, area, area_with_interval, collapse_of
from benchmark.experiments.curves import NOTHING
from benchmark.experiments.experiment import Values, configuration
from benchmark.experiments.training import SERIES
from msgrpo_hub.evaluation.tables import markdown

CONFIG = configuration("collapse")
AHEAD = (1, 2, 5, 10)
"""Updates."""
BEFORE, AFTER = 15, 5
"""Updates before and after a collapse that the figure shows."""
METRICS = (*SERIES[:5], "mutual_information", *SERIES[5:])
"""Those of the stored runs; the trainer does not measure the mutual information between prompt and reply."""
NAMES = {name: name.replace("_", " ") for name in METRICS}


def runs_by_arm(rows: Mapping[str, Values]) -> dict[str, list[Run]]:
    """The runs of each arm."""
    return {
        arm: [
            Run(values["metrics"], collapse_of(values["metrics"]["composite_return"]), float(np.mean(values["test_rewards"])))
            for values in seeds.values()
        ]
        for case in CONFIG["updates"]
        for arm, seeds in arms_of(CONFIG, case, rows).items()
    }


def all_runs(rows: Mapping[str, Values]) -> list[Run]:
    return [run for runs in runs_by_arm(rows).values() for run in runs]


def headline(rows: Mapping[str, Values]) -> str:
    """How many runs collapsed, and which metric tells best."""
    runs = all_runs(rows)
    best = next(iter(_by_area(runs)), None)
    if best is None:
        return ""
    return (
        f"{_fate(rows)} Of {len(METRICS)} metrics the {NAMES[best]} has the largest area under the ROC curve, in the update"
        f" before {area_with_interval(runs, best, 1)}, and within ten updates {area_with_interval(runs, best, 10)};"
        " 0.5 says nothing."
    )


def _fate(rows: Mapping[str, Values]) -> str:
    """How many runs collapsed, and what became of them on the test boards."""
    runs = all_runs(rows)
    ends = [run.reward for run in runs if run.collapse is not None]
    left = sorted(reward for reward in ends if reward)
    went_on = f", and {len(left)} between {left[0]:.2f} and {left[-1]:.2f}" if left else ""
    return (
        f"In {len(ends)} of {len(runs)} runs the return collapsed: it lost half of what had been learned for more than an update."
        f" On the test boards {len(ends) - len(left)} of them ended at 0{went_on}."
    )


def _by_area(runs: Sequence[Run]) -> list[str]:
    """The metrics by how well they tell in the update before, the best first."""
    areas = {name: area(runs, name, 1) for name in METRICS}
    known = {name: found for name, found in areas.items() if found is not None}
    return sorted(known, key=lambda name: -abs(known[name] - 0.5))


def answer(rows: Mapping[str, Values]) -> str:
    """How many runs collapsed, and how well each metric tells in the update before that they will."""
    runs = all_runs(rows)
    told = "; ".join(f"{NAMES[name]} {area_with_interval(runs, name, 1)}" for name in _by_area(runs))
    return (
        "A run collapses where it loses half of what it had learned, for more than an update. The area is that under the ROC"
        " curve: the probability that a metric is higher in an update that a collapse follows than in another one, over all"
        " runs up to their collapse. Intervals are a bootstrap over runs.\n\n"
        f"- **Learning rates that are too high.** {_fate(rows)} In the update before, the area under the ROC curve (0.5 says"
        f" nothing; below it, a low value is the sign): {told or NOTHING}."
    )


def tables(rows: Mapping[str, Values]) -> str:
    """Collapses by arm; areas by metric and by how many updates ahead."""
    runs = all_runs(rows)
    of_arms = [
        [arm, str(len(runs)), ", ".join(str(run.collapse + 1) if run.collapse is not None else "none" for run in runs)]
        for arm, runs in runs_by_arm(rows).items()
    ]
    areas = [[NAMES[name], *(area_with_interval(runs, name, ahead) for ahead in AHEAD)] for name in METRICS]
    head = ["metric", *(f"within {ahead} update{'s' * (ahead > 1)}" for ahead in AHEAD)]
    return f"{markdown(['arm', 'runs', 'update of each collapse'], of_arms)}\n\n{markdown(head, areas)}"


def figure(rows: Mapping[str, Values]) -> Figure:
    """A panel per metric: every run that collapsed, side by side at its collapse."""
    runs = [run for run in all_runs(rows) if run.collapse is not None]
    drawn = Figure(figsize=(4.8, 7.0), layout="constrained")
    FigureCanvasAgg(drawn)
    for axis, name in zip(drawn.subplots(4, 2, sharex=True).flatten(), METRICS, strict=True):
        for run in runs:
            axis.plot(*_around(run, name), color="#4f9dde", alpha=0.5, linewidth=1)
        axis.axvline(0, color="#c0392b", linewidth=1)
        axis.set_title(NAMES[name], fontsize=9)
        axis.grid(alpha=0.3)
    drawn.supxlabel("updates after the collapse (red)", fontsize=9)
    return drawn


def _around(run: Run, metric: str) -> tuple[Sequence[int], Sequence[float]]:
    assert run.collapse is not None
    start = max(0, run.collapse - BEFORE)
    values = run.metrics[metric][start : run.collapse + AFTER]
    return np.arange(start - run.collapse, start - run.collapse + len(values)).tolist(), values


EXPERIMENT = replace(
    compare_arms("collapse", "Which metric announces a collapse, and how early?"),
    headline=headline,
    answer=answer,
    tables=tables,
    figure=figure,
)
