"""Rollouts on the Hub: the episodes of a training run or an evaluation as a dataset, pushed with its card and read back.

The name of a shard identifies its content. A push after more training adds the new shards and updates the card.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

import pyarrow as pa
from huggingface_hub import DatasetCardData, HfApi
from huggingface_hub.hf_api import RepoFile
from tqdm import tqdm

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, THINK_ACTION
from msgrpo_hub.downloads.client import hub_errors, snapshot
from msgrpo_hub.downloads.names import is_folder
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result, find_results, run_origin
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.suites import run_seeds
from msgrpo_hub.evaluation.verify import read_episodes
from msgrpo_hub.fields import checked
from msgrpo_hub.games import Split, make_game
from msgrpo_hub.hub.cards import render
from msgrpo_hub.hub.uploading import Files, Pushed, Target, Where, check_repo_id, check_token, files_in, upload
from msgrpo_hub.rendering.replay_svg import replay_svg
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.files import files_below
from msgrpo_hub.storage.schema import COLUMNS, CONFIGS, EXAMPLES, FORMAT, SCHEMAS
from msgrpo_hub.storage.shards import ROWS, open_shard, read_table, shards, write_table
from msgrpo_hub.storage.tables import Origin, Rollout, read_rollouts, tables
from msgrpo_hub.training.callbacks import blocks
from msgrpo_hub.training.run_folder import RunFolder

LARGEST = 20 * 1024**3  # bytes of a download

_KEPT = 50  # episodes per player to select the picture from
SFT = "sft"
"""The configuration that trainers read: `prompt` and `completion` of the replies to imitate."""
_SHARD = re.compile(rf"(default|steps|{SFT})/((?:train|validation|test)-[A-Za-z0-9-]+\.parquet)")

Shard = tuple[str, Origin, Iterator[list[Rollout]]]
"""Episodes that become one file per configuration: its name, their origin, and the episodes, read in parts to bound memory."""


@checked
def push_rollouts(
    output_dir: str | Path,
    repo_id: str,
    *,
    adapter: str | None = None,
    commit_message: str | None = None,
    **where: Unpack[Where],
) -> Pushed:
    """Pushes the episodes of a run as a dataset, in one commit.

    Pushing the same episodes again makes no commit. A run may be pushed while it trains: complete blocks of updates are
    pushed, and the next push adds the new ones.

    Args:
        output_dir: of `msgrpo train --save-rollouts`, of `msgrpo eval`, or of both if the results are in the run's folder.
        adapter: `USER/NAME` of the adapter that was trained on the episodes, for the card.
        where: as for `Target`. Unlike the Hub's default, a new dataset is private unless `private` is False.

    Raises:
        UserError: the folder has no episodes; the repository holds something else; or the Hub refuses.
    """
    target = Target(repo_id=repo_id, kind="dataset", **where)
    check_token(target.token)
    with hub_errors(repo_id):
        if target.private is None and not target.api.repo_exists(repo_id, repo_type="dataset"):
            target = replace(target, private=True)
    with TemporaryDirectory() as folder:
        statistics = stage_rollouts(output_dir, repo_id, Path(folder), adapter=adapter)
        files = files_in(Path(folder))

        def stage(_: str, there: Mapping[str, RepoFile]) -> Files:
            for name in sorted({*there} - {*files, ".gitattributes"}):
                other = "episodes of another run" if _SHARD.fullmatch(name) else "something else"
                raise UserError(f"{repo_id!r} holds {other} ({name}): name another repository")
            return {name: path for name, path in files.items() if name not in there or not _SHARD.fullmatch(name)}

        games = sorted({game for _, game in statistics.tallies})
        message = commit_message or f"{statistics.episodes} episodes of {', '.join(games)}"
        return upload(stage, target, message=message)


def stage_rollouts(output_dir: str | Path, repo_id: str, folder: Path, *, adapter: str | None = None) -> Statistics:
    """Writes the dataset into a folder. Raises `UserError` as `push_rollouts` does."""
    for given in filter(None, (repo_id, adapter)):
        check_repo_id(given)
    statistics = Statistics()
    for name, origin, parts in tqdm(_shards_of(Path(output_dir)), desc="replaying", unit="shard", disable=None):
        with ExitStack() as stack:
            files, good = {}, []
            (folder / SFT).mkdir(exist_ok=True)
            for config in CONFIGS:
                (folder / config).mkdir(exist_ok=True)
                files[config] = stack.enter_context(open_shard(folder / config / f"{name}.parquet", SCHEMAS[config]))
            for rollouts in parts:
                try:
                    written = tables(rollouts, origin, [judged(rollout.episode) for rollout in rollouts])
                except ValueError as error:
                    given = f"an episode does not replay ({error})"
                    raise UserError(f"{given}: expected what was played; see `msgrpo verify`") from error
                for config, table in written.items():
                    files[config].write_table(table, row_group_size=ROWS)
                good.append(examples(written["steps"]))
                statistics.add(origin, rollouts)
        if (table := pa.concat_tables(good)).num_rows:  # `datasets` reads no empty file
            write_table(table, folder / SFT / f"{name}.parquet")
            statistics.examples.add(origin.split)
    chosen = statistics.chosen()
    prompt_format = PROMPT_FORMATS.get(chosen[0][1].prompt_format, THINK_ACTION)
    shown = [(name, rollout.episode) for name, rollout in chosen]
    picture = replay_svg(make_game(shown[0][1].game_id), shown, prompt_format)
    (folder / "replay.svg").write_text(picture, encoding="utf-8")
    (folder / "README.md").write_text(render_rollouts(repo_id, statistics, adapter), encoding="utf-8")
    return statistics


def examples(steps: pa.Table) -> pa.Table:
    """The replies to imitate, for TRL: of selected episodes with a positive advantage, or of successful ones."""
    rows = steps.select(["prompt", "reply", "action", "success", "selected", "advantage"]).to_pylist()
    good = (row for row in rows if (row["success"] if row["selected"] is None else row["selected"] and row["advantage"] > 0))
    return pa.Table.from_pylist(
        [
            {"prompt": row["prompt"], "completion": [{"role": "assistant", "content": row["reply"]}]}
            for row in good
            if row["prompt"] and row["action"]
        ],
        schema=EXAMPLES,
    )


def _shards_of(folder: Path) -> list[Shard]:
    """The shards of a run's training episodes, followed by the evaluations in its folder."""
    found: list[Shard] = []
    if RunFolder(folder).rollouts.is_dir():
        origin, own = blocks(folder)
        for name, pairs in own.items():
            pieces = (read_rollouts(read_table(heads, "default"), read_table(steps, "steps")) for heads, steps in pairs)
            found.append((name, origin, pieces))
    results = find_results(folder) if files_below(folder, run_files.RESULTS) else []
    found += [_evaluated(result) for result in results if result.complete]
    if not found:
        given = f"no episodes in {str(folder)!r}: expected the folder of `msgrpo train --save-rollouts` with some updates done, "
        raise UserError(f"{given}or of a complete `msgrpo eval`")
    return found


def _evaluated(result: Result) -> Shard:
    """The shard of an evaluation. Names of local folders are private and become `folder`; the revision is a content hash."""
    digest = hashlib.sha256(FORMAT.encode())
    for name in (run_files.CONFIG, run_files.EPISODES, run_files.STEPS):
        digest.update(hashlib.sha256((result.folder / name).read_bytes()).digest())
    own = run_origin(result.config)
    told = ((name, getattr(own, name)) for name in ("player", "base", "adapter"))
    hidden: dict[str, Any] = {name: re.sub(r"folder:[^+@]*", "folder", value) for name, value in told if value}
    origin = replace(own, **hidden)
    numbers = {seed: index for index, seed in enumerate(run_seeds(result.config))}
    rollouts = [
        Rollout(episode=episode, index=numbers.get(episode.seed), prompt_format=result.prompt_format)
        for episode in result.episodes
    ]
    return f"{origin.split}-{origin.run}-{digest.hexdigest()[:8]}", origin, iter([rollouts])


# ---- the card


@dataclass(kw_only=True)
class Statistics:
    """Statistics of a dataset, collected while its shards are written, with the episodes for its picture."""

    episodes: int = 0
    tallies: dict[tuple[Origin, str], dict[str, float]] = field(default_factory=dict)
    """(origin, game) → sums over the episodes by name, and the last update."""
    examples: set[str] = field(default_factory=set)
    """Splits with replies to imitate."""
    kept: dict[str, dict[int, Rollout]] = field(default_factory=lambda: defaultdict(dict))
    """Player → seed → the first episode from it, in the first game."""

    def add(self, origin: Origin, rollouts: Sequence[Rollout]) -> None:
        self.episodes += len(rollouts)
        for rollout in rollouts:
            episode = rollout.episode
            tally = self.tallies.setdefault((origin, episode.game_id), {})
            counts = {
                "episodes": 1,
                "steps": len(episode.steps),
                "reward": episode.reward,
                "success": episode.success,
                "selected": bool(rollout.selected),
                "without_action": episode.unreadable,  # replies, unparsed or truncated
            }
            tally |= {name: tally.get(name, 0) + count for name, count in counts.items()}
            tally["last_update"] = max(tally.get("last_update", 0), rollout.update or 0)
            own = self.kept[origin.player]
            if episode.game_id == next(iter(self.tallies))[1] and len(own) < _KEPT:
                own.setdefault(episode.seed, rollout)

    def chosen(self) -> list[tuple[str, Rollout]]:
        """The worst and the best player on the seed where they differ most; without a common seed, one good episode."""
        means = {player: sum(one.episode.reward for one in own.values()) / len(own) for player, own in self.kept.items() if own}
        ranked = sorted(means, key=means.__getitem__)
        worst, best = ranked[0], ranked[-1]
        one, other = self.kept[worst], self.kept[best]
        common = [seed for seed in one if seed in other]
        if worst == best or not common:
            return [(best, max(other.values(), key=lambda rollout: rollout.episode.reward))]
        seed = max(common, key=lambda seed: other[seed].episode.reward - one[seed].episode.reward)
        return [(worst, one[seed]), (best, other[seed])]


def render_rollouts(repo_id: str, statistics: Statistics, adapter: str | None = None) -> str:
    """The README of a rollout dataset."""
    games = sorted({game for _, game in statistics.tallies})
    there = {origin.split for origin, _ in statistics.tallies}
    splits = [split for split in ("train", "validation", "test") if split in there]
    configs = []
    for config in (*CONFIGS, *([SFT] if statistics.examples else [])):
        with_rows = [split for split in splits if config != SFT or split in statistics.examples]
        files = [{"split": split, "path": f"{config}/{split}-*.parquet"} for split in with_rows]
        configs.append({"config_name": config, **({"default": True} if config == "default" else {}), "data_files": files})
    metadata = DatasetCardData(
        license="apache-2.0",
        language=["en"],
        pretty_name=f"Episodes of {', '.join(games)}",
        task_categories=["reinforcement-learning", "text-generation"],
        tags=["msgrpo", "text-games", "reinforcement-learning", *games],
        configs=configs,
    )
    return render(
        "rollouts.md.jinja",
        metadata,
        repo_id=repo_id,
        name=repo_id.partition("/")[2],
        statistics=statistics,
        games=games,
        splits=splits,
        shown=[name for name, _ in statistics.chosen()],
        adapter=adapter,
        columns=COLUMNS,
        format=FORMAT,
    )


# ---- reading


@checked
def load_rollouts(
    repo_or_path: str | Path, *, split: Split | None = None, revision: str | None = None, token: str | None = None
) -> list[Episode]:
    """Loads the episodes of a rollout dataset. Each episode is replayed and its replies are parsed.

    Args:
        repo_or_path: `USER/NAME` on the Hub, a folder with a rollout dataset, or the folder of a run that saved its episodes.
        revision: branch, tag or commit on the Hub; None is main. It is resolved first, so that all files are of one commit.

    Raises:
        UserError: the dataset is missing, has another format, is larger than `LARGEST`, or an episode does not replay.
    """
    folder = Path(repo_or_path)
    if not is_folder(folder):
        folder = _downloaded(check_repo_id(str(repo_or_path)), split, revision, token)
    if not (found := shards(folder)):
        raise UserError(f"no rollouts in {str(repo_or_path)!r}: expected what `msgrpo push rollouts` wrote")
    if not any(split in (None, heads.name.partition("-")[0]) for heads, _ in found):
        raise UserError(f"no episodes of the split {split!r} in {str(repo_or_path)!r}: expected another split, or None for all")
    episodes = []
    for place, _, rollout, problems in read_episodes(folder, split):
        if problems or not rollout:
            why = f"{place}: {problems[0]}"
            raise UserError(f"{str(repo_or_path)!r} is refused ({why}): expected what was played; `msgrpo verify` shows details")
        episodes.append(rollout.episode)
    return episodes


def _downloaded(repo_id: str, split: str | None, revision: str | None, token: str | None) -> Path:
    """Downloads the shards of one commit and no other files."""
    with hub_errors(repo_id):
        info = HfApi(token=token).dataset_info(repo_id, revision=revision, files_metadata=True)
    listed = {entry.rfilename: entry.size or 0 for entry in info.siblings or ()}
    sizes = {name: size for name, size in listed.items() if _SHARD.fullmatch(name) and not name.startswith(SFT)}
    wanted = {name: size for name, size in sizes.items() if split in (None, Path(name).name.partition("-")[0])}
    if not wanted:
        what = f"no episodes of the split {split!r}" if sizes else "no rollouts"
        raise UserError(f"{what} in {repo_id!r}: expected a dataset that `msgrpo push rollouts` wrote")
    if (size := sum(wanted.values())) > LARGEST:
        raise UserError(f"the rollouts in {repo_id!r} have {size} bytes: expected at most {LARGEST}; load one split")
    return snapshot(repo_id, str(info.sha), wanted, kind="dataset", token=token)
