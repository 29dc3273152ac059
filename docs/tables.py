"""The computed tables of the documentation: `python docs/tables.py` writes them into their pages, and a test compares.

In a page, a table stands between `<!-- table NAME: python docs/tables.py -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import game_tables
import lake_tables
import numpy as np

from benchmark import formats, small_models
from benchmark.experiments import experiment
from benchmark.experiments.experiment import Row, read_rows, values_of
from benchmark.small_models import ARCHIVES
from benchmark.throughput import tables as throughput
from benchmark.throughput import vllm
from msgrpo_hub.evaluation.comparison import smallest_p
from msgrpo_hub.evaluation.paired import SIZE, detectable
from msgrpo_hub.evaluation.suites import load_suite
from msgrpo_hub.evaluation.tables import NONE, markdown, with_interval
from msgrpo_hub.games import base_game, make_game
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.training.config import stored_config
from msgrpo_hub.training.presets import MACHINE, ORIGINS, PAPER_PRESETS, SETTINGS, Origin, Setting, of_game, preset_settings
from msgrpo_hub.training.summary import read_metrics, read_summary
from tests.real.cases import CASES, ENGINES

ROOT = Path(__file__).resolve().parents[1]
LAKE_RUN = ROOT / "model_cards" / "examples" / "adapter"
PAGES = (
    "README.md",
    *(f"docs/guide/{page}.md" for page in ("paper", "claims", "games", "lakes", "results", "real-models", "sizing")),
    "benchmark/README.md",
    "benchmark/throughput/results/README.md",
)

_TABLE = re.compile(r"(<!-- table ([\w-]+): python docs/tables.py -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> None:
    """Writes every table."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        (ROOT / page).write_text(with_tables(text), encoding="utf-8")


def with_tables(text: str) -> str:
    """A page with its current tables."""
    return _TABLE.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n\n{match[3]}", text)


def origins() -> str:
    """The values of the paper's presets by origin, one line each."""
    return markdown(["the presets `paper-*`", "values"], [[origin, _values(origin)] for origin in ORIGINS])


def _values(origin: Origin) -> str:
    """Name and value of every setting of an origin; only the names of settings that fit a run to a machine."""
    named = {f"`{name}`": one for name, one in SETTINGS.items() if one.value != ""}
    for game in PAPER_PRESETS.values():
        named |= {(f"{name} of `{game}`" if one.value else name): one for name, one in of_game(make_game(game)).items()}
    values = [f"{name} {one.value}".strip() for name, one in named.items() if one.origin == origin]
    return ", ".join([*values, *(f"`{name}`" for name, one in MACHINE.items() if one.origin == origin)])


def presets() -> str:
    """Every value of the paper's presets with its origin and a note; of our own values, only those with a note."""
    shared = {**SETTINGS, **MACHINE}
    rows = [_row(f"`{name}`", one) for name, one in shared.items()]
    for preset in PAPER_PRESETS:
        game = make_game(PAPER_PRESETS[preset])
        rows.append(_row(f"`game` of `{preset}`", preset_settings(preset)["game"]))
        rows += [_row(f"{name} of `{game.id}`", one) for name, one in of_game(game).items()]
    noted = [row for origin in ORIGINS for row in rows if row[2] == origin and (origin != "ours" or row[3])]
    return markdown(["setting", "value", "origin", "note"], noted)


def _row(name: str, setting: Setting) -> list[str]:
    return [name, _shown(setting.value), setting.origin, setting.note]


def _shown(value: object) -> str:
    return "–" if value in ("", {}) else str(value)


def suites() -> str:
    """The cost of each suite, and the smallest difference of success rates that a comparison of two players finds on it."""
    rows = []
    for name in game_tables.SUITES:
        suite = load_suite(name)
        games = [base_game(make_game(task)) for task in suite.tasks]
        family = sum(1 if is_solvable(game) else 2 for game in games)  # where reward is success, one hypothesis
        calls = suite.episodes * sum(game.horizon for game in games)
        found = [_detectable(suite.episodes, rate, family) for rate in (0.1, 0.5)]
        rows.append([f"`{name}`", suite.split, str(len(games)), str(suite.episodes), f"{calls:,}", str(family), *found])
    head = ["suite", "boards", "tasks", "n: episodes of a task", "calls at most", "hypotheses", "found at 0.1", "found at 0.5"]
    return markdown(head, rows)


def _detectable(n: int, rate: float, family: int) -> str:
    """The smallest gain in success over a rate, for players whose successes are uncorrelated."""
    a = (np.arange(n) < round(rate * n)).astype(float)
    found = detectable(a, np.ones(n), family)  # a player that never varies is uncorrelated with any
    return "none" if found is None else f"{abs(found):.2f}"


def seeds() -> str:
    """The power of a comparison of methods by its number of training seeds."""
    rows = []
    for count in (3, 4, 5, 6, 8):
        p = smallest_p(count, count)
        rows.append([str(count), f"{p:.4f}", str(sum(p * tasks < SIZE for tasks in range(1, 1_000)))])
    return markdown(["n: training seeds of each method", "smallest p", "most tasks that can give a verdict"], rows)


DETAILS = (
    *("Not significant", "Seeds that ended", "Runs that learned nothing", "Of the variance", "Measured:", "“before” is"),
    *("The control", "With one more sentence", "These bases", "On Empty-MiniGrid", "“several rules”"),
)
"""Beginnings of sentences that only an experiment's own page has."""

SHORTER = {
    r"Better: .*? After Holm's correction for (\d+) arms: none\.": r"After Holm's correction for \1 arms, none is better.",
    ", by validation reward, where slower arms count earlier in their schedule, at a higher learning rate": "",
    r": the pretraining documents[^.]*\.": ".",
}
"""Parts of an answer, as regular expressions → what replaces them."""


def answers() -> str:
    """Of every question that has an answer: the answer without details, the figure, and a link to the whole answer."""
    parts = []
    for name in sorted(experiment.names(), key=lambda name: (name != "main_result", name)):
        of, folder, done = experiment.load(name), f"../../benchmark/experiments/{name}", _rows(name)
        if said := of.headline(values_of(done)) if done else "":
            figure = f"![Scores]({folder}/figure.png)"
            part = f", {len(done)} of {len(of.units)} units" if len(done) < len(of.units) else ""
            page = f"[Findings]({folder}/README.md){part}."
            parts.append(f"### {of.question}\n\n{_in_short(said)}\n\n{figure}\n\n{page}")
    return "\n\n".join(parts)


def _in_short(said: str) -> str:
    """An answer without the sentences that begin like `DETAILS`; of a list, the best figure of each kind of player."""
    for pattern, words in SHORTER.items():
        said = re.sub(pattern, words, said)
    if "\n- " not in said:
        paragraphs = [re.split(r"(?<=\.) (?=[A-Z“])", paragraph) for paragraph in said.split("\n\n")]
        return "\n\n".join(" ".join(each for each in of if not each.startswith(DETAILS)) for of in paragraphs)
    items = []
    for line in said.split("\n- ")[1:]:
        game, _, figures = line.partition("\n")[0].partition(": ")
        kinds: dict[str, str] = {}
        for figure in figures.rstrip(".").split("; "):
            kinds.setdefault(re.split(r"[ ,:]", figure)[0], re.sub(r" [(].*?[)]", "", figure))
        items.append(f"- {game}: {'; '.join(kinds.values())}.")
    return "\n".join(items)


@cache
def _rows(name: str) -> Mapping[str, Row]:
    return read_rows(experiment.load(name))


def decoding() -> str:
    """Tokens per second of our engine and of vLLM."""
    return markdown(*vllm.table(json.loads(vllm.RESULTS.read_text(encoding="utf-8"))["rows"]))


REAL = {
    "generate": ["greedy_replies_are_those_of_generate_up_to_ties"],
    "score": ["scores_are_the_log_probabilities_of_a_forward_pass"],
    "train": ["two_updates_move_the_adapter_by_finite_gradients"],
    "PEFT": ["an_adapter_computes_here_what_it_computes_in_peft"],
    "merge": ["a_merged_model_computes_what_its_adapter_computes"],
    "kill -9, eval, push": [
        "a_run_killed_in_its_second_update_goes_on_bit_for_bit",
        "base_adapter_and_merged_model_are_evaluated_compared_and_verified",
        "an_adapter_is_pushed_with_the_base_on_the_hub_that_has_equal_files",
    ],
}
"""Column → the tests in `tests/real` that fill it."""


def real_models() -> str:
    """The outcome of the tests by real model and number type, of the fast and the plain engine.

    If a model is refused in a type, all but its first test are skipped: a sentence below the table says so.
    """
    stored = json.loads((ROOT / "tests" / "real" / "results.json").read_text(encoding="utf-8"))["tests"]
    results = {name.partition("::test_")[2]: test for name, test in stored.items()}
    rows, refused = [], []
    for model, dtype in dict.fromkeys((case.model, case.dtype) for case in CASES):
        names = [f"[{model}-{dtype}-{engine}]" for engine in ENGINES]
        columns = [[[results.get(test + name) for test in tests] for name in names] for tests in REAL.values()]
        first, *others = (" / ".join(dict.fromkeys(map(_outcome, column))) for column in columns)
        if {*others} == {"skipped"}:
            refused.append(f"`{model}` is refused in {dtype} ({first.removesuffix(', refused')}).")
        elif {first, *others} != {"–"}:
            rows.append([model, dtype, first, *others])
    return "\n\n".join([markdown(["model", "type", *REAL], rows), *refused])


def _outcome(tests: Sequence[Mapping[str, Any] | None]) -> str:
    """The outcomes of tests, or one if they agree; a dash for a test that has not run."""
    return ", ".join(dict.fromkeys("–" if test is None else _result(test) for test in tests))


def _result(test: Mapping[str, Any]) -> str:
    if test["outcome"] != "passed":
        return str(test["outcome"])
    number = f"{test['deviation']:.1g}" if "deviation" in test else "yes"
    ties = f" ({test['ties']} tie{'s' * (test['ties'] > 1)})" if test.get("ties") else ""
    return f"{test.get('note', number)}{ties}"


def small_model_runs() -> str:
    """The stored runs of small models: success on validation boards while training, and on test boards after it."""
    rows = []
    for folder in sorted(path.parent for path in ARCHIVES.glob("*/metrics.jsonl")):
        config, metrics = stored_config(folder / "config.toml"), read_metrics(folder / "metrics.jsonl")
        curve = [f"{line['validation_success']:.2f}" for line in metrics if "validation_success" in line]
        updates = [f"{n} {kind}" for n, kind in ((config.taught, "SFT"), (config.updates - config.taught, "rewards")) if n]
        done = f" ({len(metrics)} done)" if len(metrics) < config.updates else ""
        summary = read_summary(folder / "summary.json") if (folder / "summary.json").exists() else {}
        tests = [_success(summary[name]) if name in summary else NONE for name in ("base", "adapter")]
        name = f"[{config.model}{', cells' * folder.name.endswith('cells')}](../../benchmark/small_models/{folder.name})"
        rows.append([name, ", ".join(updates) + done, ", ".join(curve), str(config.eval_episodes), *tests, _hours(metrics)])
    return markdown(["base", "updates", "validation success", "boards", "test before", "after", "processor hours"], rows)


def trained() -> str:
    """Success before and after training on the dry lake, of the stored runs of small models and of the built-in `lake`."""
    rows = []
    for folder in (*sorted(path.parent for path in ARCHIVES.glob("*-FrozenLake-NotSlippery-v1-*/summary.json")), LAKE_RUN):
        summary, metrics = read_summary(folder / "summary.json"), read_metrics(folder / "metrics.jsonl")
        players = (summary[name] for name in ("random", "base", "adapter", "optimal"))
        rows.append([summary["config"]["model"], str(summary["episodes"]), *(_success(row) for row in players), _hours(metrics)])
    return markdown(["base", "test episodes", "random", "base", "**adapter**", "optimal", "hours on one core"], rows)


def _success(row: Mapping[str, Any]) -> str:
    return with_interval({"mean": row["success"]} | dict(zip(("low", "high"), row["success_interval"], strict=True)))


def _hours(metrics: Sequence[Mapping[str, float]]) -> str:
    """Processor hours of training; of a run whose first updates did not record them, the hours by the clock."""
    if all("processor_seconds" in line for line in metrics):
        return f"{sum(line['processor_seconds'] for line in metrics) / 3600:.2g}"
    return f"{sum(line['seconds_acting'] + line['seconds_training'] for line in metrics) / 3600:.2g} (clock)"


TABLES: dict[str, Callable[[], str]] = {
    "formats": formats.table,
    "origins": origins,
    "presets": presets,
    "suites": suites,
    "seeds": seeds,
    **game_tables.TABLES,
    **lake_tables.TABLES,
    "answers": answers,
    "vllm-decoding": decoding,
    "real-models": real_models,
    "small-models": small_models.table,
    "trained": trained,
    "small-model-runs": small_model_runs,
    **throughput.TABLES,
}
"""Name of a table → its Markdown."""

if __name__ == "__main__":
    main()
