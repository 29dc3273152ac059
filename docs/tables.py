"""The computed tables of the documentation: `python docs/tables.py` writes them into their pages, and a test compares.

In a page, a table stands between `<!-- table NAME: python docs/tables.py -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from benchmark.experiments import experiment
from benchmark.experiments.curves import NOTHING, TOO_FEW
from benchmark.experiments.rows import Row, read_rows, values_of
from benchmark.throughput import sizing, vllm_quickstart
from msgrpo_hub.cli.schemas import Schema, all_outputs, schema
from msgrpo_hub.evaluation.methods import smallest_p
from msgrpo_hub.evaluation.power import SIZE, detectable
from msgrpo_hub.evaluation.statistics import RESAMPLES
from msgrpo_hub.evaluation.suites import load_suite
from msgrpo_hub.games import base_game, make_game
from msgrpo_hub.games.frozen_lake import FrozenLake
from msgrpo_hub.games.game import is_solvable
from msgrpo_hub.games.lake_maps import CountedHoles, GivenMap, RllmMaps
from msgrpo_hub.games.lake_means import Means, lake_means, mean_of
from msgrpo_hub.games.published_lakes import SCALES, Scale
from msgrpo_hub.training.paper import MACHINE, ORIGINS, PRESETS, SETTINGS, Origin, Setting, of_game, preset_settings

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", *(f"docs/guide/{page}.md" for page in ("paper", "claims", "lakes", "json", "sizing", "results", "vllm")))

_TABLE = re.compile(r"(<!-- table ([\w-]+): python docs/tables.py -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> None:
    """Writes every table anew."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        (ROOT / page).write_text(with_tables(text), encoding="utf-8")


def with_tables(text: str) -> str:
    """A page with its tables as they are now."""
    return _TABLE.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n\n{match[3]}", text)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


def origins() -> str:
    """Who decided the values of the paper's presets, in one line each."""
    return markdown(["the presets `paper-*`", "values"], [[origin, _values(origin)] for origin in ORIGINS])


def _values(origin: Origin) -> str:
    """Name and value of every setting of an origin; of what fits a run to a machine, the names."""
    named = {f"`{name}`": one for name, one in SETTINGS.items() if one.value != ""}
    for game in PRESETS.values():
        named |= {(f"{name} of `{game}`" if one.value else name): one for name, one in of_game(make_game(game)).items()}
    values = [f"{name} {one.value}".strip() for name, one in named.items() if one.origin == origin]
    return ", ".join([*values, *(f"`{name}`" for name, one in MACHINE.items() if one.origin == origin)])


def presets() -> str:
    """Every value of the paper's presets with its origin and a note."""
    shared = {**SETTINGS, **MACHINE}
    rows = [_row(f"`{name}`", one) for name, one in shared.items()]
    for preset in PRESETS:
        game = make_game(PRESETS[preset])
        rows.append(_row(f"`game` of `{preset}`", preset_settings(preset)["game"]))
        rows += [_row(f"{name} of `{game.id}`", one) for name, one in of_game(game).items()]
    by_origin = [row for origin in ORIGINS for row in rows if row[2] == origin]
    return markdown(["setting", "value", "origin", "note"], by_origin)


def _row(name: str, setting: Setting) -> list[str]:
    return [name, _shown(setting.value), setting.origin, setting.note]


def _shown(value: object) -> str:
    return "–" if value in ("", {}) else str(value)


def suites() -> str:
    """What a suite costs, and the smallest difference of success rates that a comparison of two players finds on it."""
    rows = []
    for name in ("quick", "standard", "precise", "semantic"):
        suite = load_suite(name)
        games = [base_game(make_game(task)) for task in suite.tasks]
        family = sum(1 if is_solvable(game) else 2 for game in games)  # where reward is success, one hypothesis
        calls = suite.episodes * sum(game.horizon for game in games)
        found = [_detectable(suite.episodes, rate, family) for rate in (0.1, 0.5)]
        rows.append([f"`{name}`", str(len(games)), str(suite.episodes), f"{calls:,}", str(family), *found])
    head = ["suite", "tasks", "n: episodes of a task", "calls at most", "hypotheses", "found at 0.1", "found at 0.5"]
    return markdown(head, rows)


def _detectable(n: int, rate: float, family: int) -> str:
    """The smallest gain in success over a rate, for players whose successes are uncorrelated."""
    a = np.arange(n) < round(rate * n)
    b = np.random.default_rng(0).permutation(a)
    found = detectable(a.astype(float), b.astype(float), family, smallest_p=1 / (RESAMPLES + 1))
    return "none" if found is None else f"{abs(found):.2f}"


def seeds() -> str:
    """What so many training seeds of each method can show."""
    rows = []
    for count in (3, 4, 5, 6, 8):
        p = smallest_p(count, count)
        rows.append([str(count), f"{p:.4f}", str(sum(p * tasks < SIZE for tasks in range(1, 1_000)))])
    return markdown(["n: training seeds of each method", "smallest p", "most tasks that can give a verdict"], rows)


def lakes() -> str:
    """Every published Frozen Lake, with what optimal and random play score on it."""
    rows = []
    for scale in SCALES:
        means, lake = _means(scale), scale.lakes[0]
        worth = [_with_error(means.optimal, means.optimal_error), _with_error(means.random, means.random_error)]
        rows.append([scale.name, _ids(scale), _map(lake), _slip(lake), _turns(scale), *worth])
    return markdown(["scale", "ids", "lake", "noise", "turns", "optimum", "random"], rows)


def lake_sources() -> str:
    """Where the settings of every scale stand, and what the ids lack."""
    return markdown(["scale", "settings from", "their game also has"], [[s.name, s.source, s.differs or "–"] for s in SCALES])


def lake_results() -> str:
    """Published results on their scales, with a flag where a number cannot be right on that scale."""
    scales = {scale.name: scale for scale in SCALES}
    rows = []
    for result in tomllib.loads((ROOT / "docs" / "published_lakes.toml").read_text(encoding="utf-8"))["result"]:
        means, score = _means(scales[result["scale"]]), result["score"]
        share = (score - means.random) / (means.optimal - means.random)
        source = result["source"] + (f", {result['episodes']} episodes" if "episodes" in result else "")
        shown = [f"{means.random:.3f}", f"{score:.3f}", f"{means.optimal:.3f}"]
        rows.append([result["scale"], result["player"], *shown, f"{share:.2f}", _flag(result, means), source])
    head = ["scale", "player", "random", "published", "optimum", "share", "flag", "source"]
    return markdown(head, rows)


def _flag(result: dict[str, float], means: Means) -> str:
    """Whether a score lies outside its scale, by more than two standard errors of its episodes, if told, and of the scale."""
    score = result["score"]
    chance = score * (1 - score) / result["episodes"] if "episodes" in result else 0.0
    if score - means.optimal > 2 * np.sqrt(chance + means.optimal_error**2):
        return "**above the optimum**"
    return "**below random**" if means.random - score > 2 * np.sqrt(chance + means.random_error**2) else ""


@cache
def _means(scale: Scale) -> Means:
    return mean_of([lake_means(lake) for lake in scale.lakes])


def _with_error(value: float, error: float) -> str:
    return f"{value:.3f}" + (f" ± {error:.1g}" if error else "")


def _ids(scale: Scale) -> str:
    first, last = scale.lakes[0].id, scale.lakes[-1].id
    return f"`{first}`" + (f" to `{last}`" if first != last else "")


def _map(lake: FrozenLake) -> str:
    """Size, ice and ends of a lake in words; the size of a scale of several is in its ids."""
    if isinstance(lake.maps, GivenMap):
        return f"{lake.size}×{lake.size}, gymnasium's fixed map"
    if isinstance(lake.maps, CountedHoles):
        return f"{lake.size}×{lake.size}, {lake.maps.count} holes, corner to corner"
    if isinstance(lake.maps, RllmMaps):
        return f"ice {lake.maps.ice[0]}–{lake.maps.ice[1]}, random ends, search to depth {lake.maps.depth}"
    return f"{lake.size}×{lake.size}, ice {lake.frozen_probability}, random ends"


def _slip(lake: FrozenLake) -> str:
    if not lake.slippery:
        return "none"
    return "1/3 each way" if lake.success_rate is None else f"{1 - lake.success_rate:.1g} to a side"


def _turns(scale: Scale) -> str:
    turns = [lake.horizon for lake in scale.lakes]
    return str(turns[0]) if len(set(turns)) == 1 else f"{turns[0]}–{turns[-1]}"


def outputs() -> str:
    """What every command prints with `--json`."""
    rows = []
    for name, one in all_outputs().items():
        command, _, flag = one.command.partition(" ")
        with_flag = f" with `{flag}`" if flag else ""
        rows.append([f"`msgrpo {command}`{with_flag}", f"`{name}`", _type(schema(name))])
    return markdown(["command", "schema", "prints"], rows)


def output_types() -> str:
    """The fields of every type of these outputs."""
    types = {name: kind for output in all_outputs() for name, kind in schema(output)["$defs"].items()}
    return "\n\n".join(_fields(name, types[name]) for name in sorted(types))


def _fields(name: str, kind: Schema) -> str:
    rows = [
        [f"`{field}`", _type(part) + ("" if field in kind["required"] else ", optional"), _cell(part.get("description", ""))]
        for field, part in kind["properties"].items()
    ]
    rest = kind["additionalProperties"]
    rows += [["any other", _type(rest), ""]] if rest else []
    return f"### {name}\n\n{kind['description']}\n\n{markdown(['field', 'type', 'meaning'], rows)}"


def _type(part: Schema) -> str:
    """A schema in words; a named type is a link to its table."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in part:
        return " or ".join(f"`{value}`" for value in part["enum"])
    if "anyOf" in part:
        return " or ".join(map(_type, part["anyOf"]))
    if "prefixItems" in part:
        return " and ".join(map(_type, part["prefixItems"]))
    kinds = part.get("type", "anything")
    if kinds == "array":
        return f"list of {_type(part['items'])}"
    if kinds == "object":
        return f"object of {_type(part['additionalProperties'])}"
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def experiments() -> str:
    """Every question with how much of it has run, those with results first."""
    found = [(name, experiment.load(name), len(_rows(name))) for name in experiment.names()]
    lines = [
        [f"[{of.question}](../../benchmark/experiments/{name}/README.md)", f"{done} of {len(of.units)}"]
        for name, of, done in sorted(found, key=lambda each: not each[2])
    ]
    return markdown(["question", "units that have run"], lines)


def answers() -> str:
    """Of every question with a finding from at least three seeds: the first finding and the figure."""
    parts = []
    for name in experiment.names():
        if done := _rows(name):
            of, folder = experiment.load(name), f"../../benchmark/experiments/{name}"
            finding = next(line for line in of.answer(values_of(done)).splitlines() if line.startswith("- "))
            if TOO_FEW in finding or NOTHING in finding:
                continue
            figure = f"![{of.question} The page has the same figures as tables.]({folder}/figure.png)"
            command = f"`python -m benchmark.experiments run {name}`; [all findings, tables and raw results]({folder}/README.md)."
            parts.append(f"### {of.question}\n\n{finding.removeprefix('- ')}\n\n{figure}\n\n{command}")
    return "\n\n".join(parts)


@cache
def _rows(name: str) -> Mapping[str, Row]:
    return read_rows(experiment.load(name), experiment.HERE / name)


def adapters() -> str:
    """The table of the built-in adapters."""
    page = (ROOT / "msgrpo_hub" / "pocket" / "adapters" / "README.md").read_text(encoding="utf-8")
    return "\n".join(line for line in page.splitlines() if line.startswith("|"))


def vllm() -> str:
    """The quickstart acting on vLLM and with our own engine."""
    return markdown(*vllm_quickstart.table(json.loads(vllm_quickstart.RESULTS.read_text(encoding="utf-8"))["runs"]))


TABLES: dict[str, Callable[[], str]] = {
    "origins": origins,
    "presets": presets,
    "suites": suites,
    "seeds": seeds,
    "lakes": lakes,
    "lake-sources": lake_sources,
    "lake-results": lake_results,
    "outputs": outputs,
    "output-types": output_types,
    "experiments": experiments,
    "answers": answers,
    "adapters": adapters,
    "vllm-quickstart": vllm,
    **sizing.TABLES,
}
"""Name of a table → its Markdown."""

if __name__ == "__main__":
    main()
