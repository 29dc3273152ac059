"""The report: one HTML file with the tables, the charts and the replays of a folder of results.

The file loads nothing from outside. Replies are untrusted text: the template escapes them, the script sets them as text, and a
content security policy lets the browser run only the page's own script.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
from jinja2 import Environment, StrictUndefined

from msgrpo_hub import __version__
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import tables
from msgrpo_hub.evaluation.comparison import paired_values
from msgrpo_hub.evaluation.paired import compare_tasks
from msgrpo_hub.evaluation.results import Result, find_results, player_key, player_names, run_hash
from msgrpo_hub.evaluation.semantic import meaning, semantic_scores
from msgrpo_hub.evaluation.statistics import BETTING
from msgrpo_hub.evaluation.suites import run_seeds
from msgrpo_hub.evaluation.summary import plays, rank_key
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import return_range
from msgrpo_hub.games.solving import TIE
from msgrpo_hub.rendering.charts import count_outcomes, task_svg
from msgrpo_hub.rendering.replay import Data, ending, episode_data, game_data, number, read_part, replay_assets
from msgrpo_hub.storage.files import AGAIN, disk_errors, write_atomically

WORST = 3
"""Worst episodes listed per player."""

MOST = 20
"""Episodes of a task that can be replayed."""

BUDGET = 2_000_000
"""Bytes of replays in a page."""


def write_report(folder: Path, output: Path, baseline: str = "") -> Path:
    """Writes the page of all runs under a folder that `msgrpo eval` filled.

    The others are compared with the player `baseline`; if it is empty, with the first model without an adapter. Raises
    `UserError` if no such player is there, a run does not replay, or the page cannot be written.
    """
    if output.exists() and not output.is_file():
        raise UserError(f"--output {str(output)!r} is not a regular file: expected a new file, or one to replace")
    page = report_page(find_results(folder), baseline)
    with disk_errors(output.parent, lambda: "the runs are as they were", again=f"{AGAIN}, or name another file with --output"):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output.resolve(), lambda beside: beside.write_text(page, encoding="utf-8", errors="replace"))
    return output


def report_page(results: Sequence[Result], baseline: str = "") -> str:
    """The page of some runs. Equal runs give equal pages, byte for byte."""
    names = player_names(results)
    if baseline and baseline not in names.values():
        raise UserError(f"no player {baseline!r} in these results: expected one of {', '.join(sorted(names.values()))}")

    def name(result: Result) -> str:
        return names[player_key(result)]

    # 1) the base of each task, first if it was chosen or plays, then the others by their scores
    groups, bases = tables.same_episodes(results), []
    for group in groups:
        identities = [(result, result.config["identity"]) for result in group]
        models = [result for result, of in identities if "base" in of and "adapter" not in of]
        base = [*(result for result in group if name(result) == baseline), *models, group[0]][0]
        bases.append(base)
        leads = bool(baseline) or plays(base.summary)
        group.sort(key=lambda result: (result is not base or not leads, rank_key(result.summary)))

    # 2) each complete run against the base of its task, with Holm over all tests of the page
    family = {
        run_hash(other.config): paired_values(base, other)
        for group, base in zip(groups, bases, strict=True)
        for other in group
        if other is not base and base.complete and other.complete
    }
    listed = [result for group in groups for result in group]
    ranges = {run_hash(other.config): return_range(make_game(other.task)) for other in listed}
    rows = compare_tasks(family, zlib.crc32("".join(sorted(family)).encode()), ranges)
    compared, sections = {row.task: row for row in rows}, []

    # 3) a section per task
    for title, group, base in zip(tables.titles(groups), groups, bases, strict=True):
        shown = [name(result) for result in group]
        repeated = [(name(result), figures) for result in group if (figures := tables.repeat_figures(result))]
        counts = [count_outcomes(result) for result in group]
        words = [
            ", ".join([*(f"{kind} {n}" for kind, n in ends.items()), *(f"replies {kind} {n}" for kind, n in said.items() if n)])
            for ends, said in counts
        ]
        sections.append(
            {
                "title": title,
                "rows": list(zip(shown, group, strict=True)),
                "fullest": max(group, key=lambda result: int(result.summary["episodes"])),
                "base": name(base),
                "charts": [b64encode(task_svg(group, shown, narrow=narrow).encode()).decode() for narrow in (False, True)],
                "alt": "; ".join(f"{who}: {said}" for who, said in zip(shown, words, strict=True)),
                "survived": any(ends["survived"] for ends, _ in counts),
                "worst": [[(r.episodes[at], r.scores[at]) for at in worst_episodes(r)] for r in group],
                "seeds": run_seeds(base.config),
                "compared": [(name(r), tables.hypotheses(compared[h])) for r in group if (h := run_hash(r.config)) in compared],
                "repeats": [["Player", *figures] for _, figures in repeated[:1]]
                + [[who, *figures.values()] for who, figures in repeated],
            }
        )

    # 4) the page
    semantic, assets = semantic_scores(listed), replay_assets(result.task for result in listed)
    style, script = assets["style"] + read_part("report_page.css"), assets["script"] + read_part("report_page.js")
    allowed = [f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in (style, script)]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.filters |= {"number": number, "played_on": tables.played_on, "board_note": tables.board_note}
    environment.filters |= {"plays": plays, "optimal_moves": tables.optimal_moves, "key": player_key}
    page = environment.from_string(read_part("report_page.html")).render(
        sections=sections,
        tasks=len({result.task for result in listed}),
        players=sorted(names.values(), key=lambda player: player not in {name(base) for base in bases}),
        names=names,
        runs=[(name(result), result.config, run_hash(result.config)) for result in listed],
        ending=ending,
        semantic=semantic,
        meaning=meaning(semantic) if semantic else "",
        identities=[(names[key], json.loads(key)[1]) for key in names],
        tests=sum(len(tables.hypotheses(row)) for row in compared.values()),
        data=collect_replays(groups, bases, name),
        policy="default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src {allowed[0]}; script-src {allowed[1]}",
        style=style,
        script=script,
        shapes=assets["shapes"],
        version=__version__,
        betting=BETTING,
        repeats_note=tables.REPEATS,
    )
    return page.lstrip()


# ---- episodes to replay; of repeated boards, the first play of each


def worst_episodes(result: Result) -> list[int]:
    """Positions of a player's worst episodes: the largest regrets, or the lowest rewards if the game is not solved."""
    badness = [-score.reward if score.regret is None else score.regret for score in result.scores]
    order = sorted(range(len(badness)), key=lambda position: (-badness[position], position))
    first = [position for position in order if not result.episodes[position].member]
    return [position for position in first if result.scores[position].regret is None or badness[position] > TIE][:WORST]


def telling_seeds(results: Sequence[Result]) -> list[int]:
    """Seeds to replay: alternately one on which the players differ most, and a player's worst."""
    rewards: dict[int, list[tuple[float, float]]] = {}
    for result in results:
        for episode, score in zip(result.episodes, result.scores, strict=True):
            if not episode.member:
                rewards.setdefault(episode.seed, []).append((score.reward, score.regret or 0.0))
    # with a single player, in the order of the suite
    differ = sorted(rewards, key=lambda seed: tuple(np.ptp(rewards[seed], axis=0)), reverse=True)[:MOST]
    ranks = zip_longest(*([r.episodes[position].seed for position in worst_episodes(r)] for r in results))
    worst = [seed for rank in ranks for seed in rank if seed is not None]
    mixed = chain.from_iterable(zip_longest(differ, worst))
    return list(dict.fromkeys(seed for seed in mixed if seed is not None))[:MOST]


def collect_replays(
    tasks: Sequence[Sequence[Result]], bases: Sequence[Result], name: Callable[[Result], str], budget: int = BUDGET
) -> Data:
    """The replays of a page as plain data, in at most `budget` bytes; the first seeds of every task come first.

    `tasks` and `bases` are the results and the base of each task, and `name` returns the player's name of a result.
    """
    players, shown = list(dict.fromkeys(name(result) for results in tasks for result in results)), []
    for results, base, title in zip(tasks, bases, tables.titles(tasks), strict=True):
        # beside the base: its adapter, or else the best of the others
        others = [result for result in results if result is not base]
        commit = base.config["identity"].get("base_commit")
        adapters = [result for result in others if commit and result.config["identity"].get("base_commit") == commit]
        pair = {"a": players.index(name(base)), "b": next((players.index(name(r)) for r in [*adapters, *others]), None)}
        shown.append(game_data(make_game(results[0].task)) | {"title": title, "seeds": [], "pair": pair})
    queues = [telling_seeds(results) for results in tasks]
    for rank in range(MOST):
        for task, results, queue in zip(shown, tasks, queues, strict=True):
            if rank < len(queue):
                seed = _replay(results, queue[rank], [str(players.index(name(result))) for result in results])
                budget -= len(json.dumps(seed, ensure_ascii=False).encode("utf-8", "surrogatepass"))
                if budget >= 0:
                    task["seeds"].append(seed)
    return {"players": players, "tasks": shown}


def _replay(results: Sequence[Result], seed: int, players: Sequence[str]) -> Data:
    """The episodes of all players on one seed."""
    episodes, rewards = {}, set()
    for player, result in zip(players, results, strict=True):
        for episode, score, steps in zip(result.episodes, result.scores, result.steps, strict=True):
            if episode.seed == seed and not episode.member:
                try:
                    episodes[player] = episode_data(make_game(result.task), episode, steps)
                except ValueError as error:
                    raise UserError(f"{error}; expected results of this version of the game (see `msgrpo verify`)") from error
                rewards.add(score.reward)
    span = " to ".join(number(reward, 0 if reward.is_integer() else 2) for reward in sorted({min(rewards), max(rewards)}))
    return {
        "seed": str(seed),  # more digits than a JavaScript number holds
        "label": f"episode {run_seeds(results[0].config).index(seed)} · reward {span}",
        "episodes": episodes,
    }
