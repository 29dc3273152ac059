"""The table over training seeds, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgrpo_hub.evaluation.over_seeds import FEWEST_SEEDS, OverSeeds
from msgrpo_hub.evaluation.tables import aligned
from msgrpo_hub.training.seed_sets import Variant, figures, tables_of

Figures = Mapping[str, OverSeeds]


def seed_table(variants: Sequence[Variant]) -> str:
    """One block per game: a line per variant, between the players that are the same for all of them; then what is missing."""
    finished = [variant for variant in variants if variant.finished]
    games = dict.fromkeys(game for variant in finished for game in figures(variant.finished))
    return "\n".join(["\n\n".join(_block(game, finished) for game in games), *_remarks(variants)]).strip()


def _block(game: str, variants: Sequence[Variant]) -> str:
    adapters = {variant.name: of[game] for variant in variants if game in (of := figures(variant.finished))}
    [first, *_] = [variant for variant in variants if variant.name in adapters]
    summary = next(iter(first.finished.values()))
    is_same = all(of["reward"].by_seed == of["success"].by_seed for of in adapters.values())
    names = ["reward"] if is_same else ["reward", "success"]
    rows = []
    for player in tables_of(summary)[game]["players"]:
        if player == "adapter":
            rows += [_row(name, of, names) for name, of in adapters.items()]
        elif alike := _alike(player, game, variants):
            rows.append([player, "", *(cell for name in names for cell in _constant(alike, name))])
    parts = [("reward = success" if is_same else name, "std", "worst", "best", "greedy") for name in names]
    episodes = f"{game}, {summary['episodes']} test episodes per run"
    title = f"{episodes}; means over training seeds with 95 % intervals over the seeds"
    return f"{title}\n{aligned([['', 'seeds', *(cell for part in parts for cell in part)], *rows])}"


def _row(name: str, of: Figures, names: Sequence[str]) -> list[str]:
    cells = [cell for figure in names for cell in _cells(of[figure], of[f"{figure}_greedy"])]
    return [name, str(len(of["reward"].by_seed)), *cells]


def _cells(sampled: OverSeeds, greedy: OverSeeds) -> list[str]:
    values = sampled.by_seed.values()
    std = "–" if sampled.std is None else f"{sampled.std:.3f}"
    return [str(sampled), std, f"{min(values):z.3f}", f"{max(values):z.3f}", f"{greedy.mean:z.3f}"]


def _constant(of: Figures, name: str) -> list[str]:
    """The cells of a player that plays the same whatever the training seed."""
    return [f"{of[name].mean:z.3f}", "", "", "", f"{of[f'{name}_greedy'].mean:z.3f}"]


def _alike(player: str, game: str, variants: Sequence[Variant]) -> Figures | None:
    """The figures of a player that no training changes, if they are the same in all runs of all variants."""
    every = [of[game] for variant in variants if game in (of := figures(variant.finished, player))]
    values = {(name, value) for of in every for name, figure in of.items() for value in figure.by_seed.values()}
    return every[0] if every and len(values) == len(every[0]) else None


def _remarks(variants: Sequence[Variant]) -> list[str]:
    """The runs that are not finished or learned nothing, and the variants without an interval."""
    remarks = []
    for variant in variants:
        for seed, run in variant.runs.items():
            if run.summary is None:
                remarks.append(f"{variant.name}, seed {seed}: {len(run.metrics)} of {run.config.updates} updates")
            elif why := run.summary.get("learned_nothing"):
                remarks.append(f"{variant.name}, seed {seed} learned nothing: {why}")
            elif why := run.summary.get("rewards_taught_nothing"):
                remarks.append(f"{variant.name}, seed {seed} learned from its teacher alone: {why}")
        if 0 < len(variant.finished) < FEWEST_SEEDS:
            remarks.append(f"{variant.name}: an interval needs {FEWEST_SEEDS} finished seeds")
    return remarks
