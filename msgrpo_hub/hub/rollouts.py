"""Pushes rollouts to the Hub: the episodes of a training run or an evaluation as a dataset with its card, in one commit.

A shard's name identifies its content. A published shard is never sent again or rewritten: a push after more training adds
the new shards and updates the card.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from msgrpo_hub.downloads.hub_errors import hub_errors
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import Result, find_results, run_origin
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.suites import run_seeds
from msgrpo_hub.fields import checked
from msgrpo_hub.hub.rollout_card import RolloutCard, Statistics, render_rollouts
from msgrpo_hub.hub.rollout_picture import PICTURE, RolloutPicture
from msgrpo_hub.hub.rollout_reading import SHARD
from msgrpo_hub.hub.uploading import Pushed, Target, check_repo_id, check_token, upload
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.schema import CONFIGS, FORMAT, schema
from msgrpo_hub.storage.shards import ROWS, open_shard, read_shard, read_table
from msgrpo_hub.storage.tables import Origin, Rollout, read_rollouts, tables
from msgrpo_hub.storage.update_rules import UpdateRules, rules_of, with_rules
from msgrpo_hub.training.rollout_log import Block, blocks
from msgrpo_hub.training.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Episodes that are published as one file per configuration."""

    name: str
    origin: Origin
    rules: UpdateRules | None = None
    """Of the run's updates; None for an evaluation."""
    parts: Iterable[Callable[[], list[Rollout]]]
    """Read one after the other, to bound memory."""


@checked
def push_rollouts(
    output_dir: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    token: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
) -> Pushed:
    """Pushes the episodes of a run as a data set, in one commit.

    Pushing the same episodes again makes no commit. A run may be pushed while it trains: complete blocks of updates are
    pushed, and the next push adds the new ones.

    Args:
        output_dir: of `msgrpo train --save-rollouts`, of `msgrpo eval`, or of both if the results are in the run's folder.
        repo_id: `USER/NAME`; created if missing.
        private: visibility of a new repository; an existing one must agree. None makes a new one private, unlike the Hub's
            default: publishing a model's replies should be a decision.
        revision: a branch; None is main.
        token: None uses the token of `hf auth login` or HF_TOKEN.
        create_pr: open a pull request instead.
        commit_message: title of the commit.

    Returns:
        The repository, the commit and what was sent. The commit is tagged with the format's version.

    Raises:
        UserError: the folder has no episodes; the repository holds something else; or the Hub refuses.
    """
    target = Target(repo_id=repo_id, kind="dataset", private=private, revision=revision, token=token, create_pr=create_pr)
    check_token(target)
    with TemporaryDirectory() as folder:
        card = stage_rollouts(output_dir, repo_id, Path(folder))
        names = {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*.parquet")}
        message = commit_message or f"{card.statistics.episodes} episodes of {', '.join(card.games)}"
        prepare = partial(_leave_out_published, Path(folder), names, target)
        return upload(
            Path(folder), _private_if_new(target), message=message, tags=(FORMAT,), replaces=(PICTURE,), prepare=prepare
        )


def _private_if_new(target: Target) -> Target:
    with hub_errors(target.repo_id):
        new = target.private is None and not target.api.repo_exists(target.repo_id, repo_type="dataset")
    return replace(target, private=True) if new else target


def _leave_out_published(folder: Path, names: Collection[str], target: Target, _: str, there: Collection[str]) -> None:
    """Removes already published shards from the folder. Raises `UserError` if the repository holds anything else."""
    for name in sorted({*there} - {"README.md", PICTURE, ".gitattributes"}):
        if name not in names:
            other = "episodes of another run" if SHARD.fullmatch(name) else "something else"
            raise UserError(f"{target.repo_id!r} holds {other} ({name}): name another repository")
        (folder / name).unlink(missing_ok=True)


def stage_rollouts(output_dir: str | Path, repo_id: str, folder: Path) -> RolloutCard:
    """Writes the data set into a folder. Raises `UserError` as `push_rollouts` does."""
    check_repo_id(repo_id)
    statistics, picture = Statistics(), RolloutPicture()
    for shard in tqdm(shards_of(Path(output_dir)), desc="replaying", unit="shard", disable=None):
        _write(shard, folder, statistics, picture)
    (folder / PICTURE).write_text(picture.draw(), encoding="utf-8")
    card = RolloutCard(repo_id=repo_id, statistics=statistics, shown=picture.names())
    (folder / "README.md").write_text(render_rollouts(card), encoding="utf-8")
    return card


def _write(shard: Shard, folder: Path, statistics: Statistics, picture: RolloutPicture) -> None:
    with ExitStack() as stack:
        files = {}
        for config in CONFIGS:
            (folder / config).mkdir(exist_ok=True)
            columns = with_rules(schema(config), shard.rules)
            files[config] = stack.enter_context(open_shard(folder / config / f"{shard.name}.parquet", columns))
        for read in shard.parts:
            rollouts = read()
            try:
                written = tables(rollouts, shard.origin, [judged(rollout.episode) for rollout in rollouts])
            except ValueError as error:
                raise UserError(f"an episode does not replay ({error}): expected what was played; see `msgrpo verify`") from error
            for config, table in written.items():
                files[config].write_table(table, row_group_size=ROWS)
            statistics.add(shard.origin, rollouts, written)
            picture.add(shard.origin, rollouts)


def shards_of(folder: Path) -> list[Shard]:
    """The shards of a run's training episodes, then those of the evaluations in its folder."""
    run = RunFolder(folder)
    shards = [_trained(origin, block) for origin, own in [blocks(folder)] for block in own] if run.rollouts.is_dir() else []
    results = find_results(folder) if any(folder.rglob(run_files.RESULTS)) else []
    shards += [_evaluated(result) for result in results if result.complete]
    if not shards:
        raise UserError(
            f"no episodes in {str(folder)!r}: expected the folder of `msgrpo train --save-rollouts` with some updates done, "
            "or of a complete `msgrpo eval`"
        )
    return shards


def _trained(origin: Origin, block: Block) -> Shard:
    def read(heads: Path, steps: Path) -> list[Rollout]:
        return read_rollouts(*read_shard(heads, steps))

    stored = [rules_of(read_table(heads, "default").schema) for heads, _ in block.pieces]
    same = len(set(stored)) == 1  # a run may continue with another torch, or on another machine
    rules = stored[0] if same else stored[0] and replace(stored[0], torch="several", machine="several")
    return Shard(name=block.name, origin=origin, rules=rules, parts=[partial(read, *pair) for pair in block.pieces])


def _evaluated(result: Result) -> Shard:
    digest = hashlib.sha256(FORMAT.encode())
    for name in (run_files.CONFIG, run_files.EPISODES, run_files.STEPS):
        digest.update(hashlib.sha256((result.folder / name).read_bytes()).digest())
    own = run_origin(result.config)
    base, adapter = (source and _nameless(source, source) for source in (own.base, own.adapter))
    origin = replace(own, player=_nameless(own.player, own.base, own.adapter), base=base, adapter=adapter)
    name = f"{origin.split}-{origin.run}-{digest.hexdigest()[:8]}"
    return Shard(name=name, origin=origin, parts=[partial(_rollouts, result)])


def _rollouts(result: Result) -> list[Rollout]:
    """The episodes of an evaluation, each with the index of its seed."""
    numbers = {seed: index for index, seed in enumerate(run_seeds(result.config))}
    return [
        Rollout(episode=episode, index=numbers.get(episode.seed), prompt_format=result.prompt_format)
        for episode in result.episodes
    ]


def _nameless(name: str, *sources: str | None) -> str:
    """Removes the names of local folders, which are private, from a player's; the revision is the hash of the content.

    >>> _nameless("folder:zaphods+model+ada/lake", "folder:zaphods+model", "ada/lake")
    'folder+ada/lake'
    >>> _nameless("folder:zaphod+folder:zaphod-lake", "folder:zaphod", "folder:zaphod-lake")
    'folder+folder'
    """
    for source in sorted(filter(None, sources), key=len, reverse=True):  # one may begin with another
        if source.startswith("folder:"):
            name = name.replace(source, "folder")
    return re.sub(r"folder:[^+@]*", "folder", name)
