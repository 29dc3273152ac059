"""The page and the figure of an experiment, both made from its raw results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from PIL import Image

from benchmark.experiments.experiment import Experiment
from benchmark.experiments.rows import Row, digest, read_rows, values_of
from msgrpo_hub.errors import UserError

PAGE, FIGURE = "README.md", "figure.png"
ROWS = "Rows"
"""The entry of the figure's metadata with the hash of its raw results."""


def write(name: str, experiment: Experiment, folder: Path) -> None:
    """Writes the page, and the figure if any unit has run."""
    rows = read_rows(experiment, folder)
    (folder / PAGE).write_text(page(name, experiment, rows), encoding="utf-8")
    if rows:
        figure = experiment.figure(values_of(rows))
        figure.savefig(folder / FIGURE, dpi=150, metadata={ROWS: digest(rows)})


def check(name: str, experiment: Experiment, folder: Path) -> None:
    """Raises `UserError` if the page or the figure was not made from the raw results as they are now."""
    rows = read_rows(experiment, folder)
    drawn = Image.open(folder / FIGURE).info.get(ROWS) if (folder / FIGURE).exists() else None
    if (folder / PAGE).read_text(encoding="utf-8") != page(name, experiment, rows):
        raise UserError(f"{folder / PAGE} is not what its raw results give: run `python -m benchmark.experiments figures`")
    if drawn != (digest(rows) if rows else None):
        raise UserError(f"{folder / FIGURE} was drawn from other raw results: run `python -m benchmark.experiments figures`")


def page(name: str, experiment: Experiment, rows: Mapping[str, Row]) -> str:
    """The Markdown of an experiment: question, answer, figure, tables, and how it was run."""
    values, found = values_of(rows), "Nothing has run yet.\n"
    if rows:
        parts = [experiment.headline(values), experiment.answer(values), f"![{experiment.question}]({FIGURE})"]
        found = "\n\n".join([*filter(None, parts), experiment.tables(values)]) + "\n"
    return (
        f"<!-- Made by `python -m benchmark.experiments figures`; change experiment.py instead. -->\n"
        f"# {experiment.question}\n\n{found}\n## How it was run\n\n"
        f"```bash\npython -m benchmark.experiments run {name}\npython -m benchmark.experiments figures\n```\n\n"
        f"The settings and seeds are in [config.toml](config.toml). {_cost(experiment, rows)}\n"
    )


def _cost(experiment: Experiment, rows: Mapping[str, Row]) -> str:
    """How much has run, and what it took."""
    done = f"{len(rows)} of {len(experiment.units)} units have run"
    if not rows:
        return f"{done}."
    hours = sum(row["cpu_seconds"] for row in rows.values()) / 3600
    made_on = sorted({f"{row['machine']['cpu']}, torch {row['versions']['torch']}" for row in rows.values()})
    return f"{done}, whose raw results are in [rows.json](rows.json). They took {hours:.2f} CPU hours ({'; '.join(made_on)})."
