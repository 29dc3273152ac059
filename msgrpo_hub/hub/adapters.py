"""Pushes an adapter to the Hub: one commit with weights, card, configuration, results and replay that anyone can load.

Everything is first written into a folder, from typed data. Then the folder is pushed; a dry run stops before that.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file
from torch import Tensor

from msgrpo_hub import __version__
from msgrpo_hub.downloads.fetching import (
    ADAPTER_SETTINGS,
    ADAPTER_WEIGHTS,
    TEMPLATE,
    TOKENIZER_FILES,
    VOCABULARIES,
    Fetched,
    fetch,
    list_files,
    prompting_files,
)
from msgrpo_hub.downloads.inspection import PLAY_SETTINGS
from msgrpo_hub.downloads.names import built_in_adapters, split_revision
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.suites import task_hash
from msgrpo_hub.fields import checked
from msgrpo_hub.hub.adapter_card import LOCAL, RESULTS, FinishedRun, read_run, render_adapter, task_score
from msgrpo_hub.hub.bases import Base, find_base
from msgrpo_hub.hub.uploading import Pushed, Target, Where, check_repo_id, check_token, upload
from msgrpo_hub.storage import run_files
from msgrpo_hub.training.config import TrainConfig, to_toml
from msgrpo_hub.training.seeds import records

FORMAT = "msgrpo-adapter-v1"

_OWNED = (
    *(ADAPTER_WEIGHTS, ADAPTER_SETTINGS, PLAY_SETTINGS, TEMPLATE, *TOKENIZER_FILES, "README.md", "config.toml"),
    *("results.json", "test_episodes.parquet", "replay.svg", "replay.mp4", "replay.gif", "curves.png", f"{RESULTS}/"),
)
"""The files that a push owns. It removes the files of an earlier push that it does not have."""


@checked
def push_adapter(
    output_dir: str | Path,
    repo_id: str,
    *,
    base: str | None = None,
    rollouts: str | None = None,
    commit_message: str | None = None,
    **where: Unpack[Where],
) -> Pushed:
    """Pushes the adapter of a finished run, with its card and its results, in one commit.

    Pushing the same files again makes no commit. After a failure the same call completes the push.

    Args:
        output_dir: folder of the run. Results of `msgrpo eval` with this adapter in its `results/` are pushed too.
        base: `USER/NAME[@revision]` that holds the base, if the run was trained on the built-in base or on a folder.
        rollouts: `USER/NAME` of a public dataset with the training episodes of this run, for the card.
        where: as for `Target`.

    Raises:
        UserError: the run is not finished, the adapter equals its base, others cannot load the base, or as for `upload`.
    """
    target = Target(repo_id=repo_id, **where)
    with TemporaryDirectory() as folder:
        run, public = stage_adapter(output_dir, repo_id, Path(folder), base=base, rollouts=rollouts, token=target.token)
        games, step = ", ".join(table.game.id for table in run.games), run.summary["adapter_update"]
        message = commit_message or f"Adapter for {games}, step {step}"
        beside = [("model", public.repo_id), *([("dataset", rollouts)] if rollouts else [])]
        return upload(Path(folder), target, message=message, marker=ADAPTER_SETTINGS, replaces=_OWNED, beside=beside)


def check_push(config: TrainConfig, repo_id: str, base: str | None = None) -> None:
    """Checks before a training run what `push_adapter` needs: the repository's name, a token and a published base."""
    check_repo_id(repo_id)
    check_token()
    find_base(config, base)


def stage_adapter(
    output_dir: str | Path,
    repo_id: str,
    folder: Path,
    *,
    base: str | None = None,
    rollouts: str | None = None,
    token: str | None = None,
) -> tuple[FinishedRun, Base]:
    """Writes the content of the repository into a folder, and returns the run and its base. Arguments as for `push_adapter`."""
    # 1) read and check the run
    for name in filter(None, (repo_id, rollouts)):
        check_repo_id(name)
    run = read_run(Path(output_dir))
    adapter, tensors = read_adapter(run.folder.adapter)
    published = find_base(run.config, base, run.summary["base_commit"], token)
    # 2) the adapter, with the base's public name and only settings that PEFT knows
    known = {field.name for field in dataclasses.fields(LoraConfig)}
    public = {name: value for name, value in (adapter.adapter or {}).items() if name in known}
    public |= {"base_model_name_or_path": published.repo_id, "revision": published.commit, "auto_mapping": None}
    save_file(tensors, folder / ADAPTER_WEIGHTS, {"format": "pt"})
    (folder / ADAPTER_SETTINGS).write_text(as_json(public), encoding="utf-8")
    # 3) the files of the run
    source = run.folder
    own = [path for path in (source.curves, source.replay, source.video, source.gif, source.test_episodes) if path.exists()]
    beside = prompting_files({path.name for path in source.adapter.iterdir()})
    if not any(name in beside for name in VOCABULARIES):  # the base's, so that `AutoTokenizer` works on the repository
        there = list_files(published.repo_id, published.commit)
        encoding = [name for name in (TEMPLATE, *TOKENIZER_FILES) if name in there.sizes]
        there.check_size(encoding)
        own += [there.download(encoding) / name for name in encoding]
    own += [source.adapter / name for name in beside]
    files = {path.name: path for path in own}
    for result in run.results:
        place, names = task_score(result)["folder"], (run_files.CONFIG, run_files.RESULTS, run_files.EPISODES, run_files.STEPS)
        files |= {f"{place}/{name}": result.folder / name for name in names}
    for name, path in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(path.read_bytes())
    # 4) configuration, results and card
    config = dataclasses.replace(run.config, chat_template_kwargs=adapter.chat_template_kwargs)
    config = public_config(config, published, run.summary["init_adapter_commit"], run.summary.get("sft_commit", ""))
    (folder / "config.toml").write_text(to_toml(config), encoding="utf-8")
    (folder / "results.json").write_text(as_json(published_results(run, config, published)), encoding="utf-8")
    (folder / "README.md").write_text(render_adapter(run, repo_id, config, published, rollouts), encoding="utf-8")
    return run, published


def read_adapter(folder: Path) -> tuple[Fetched, dict[str, Tensor]]:
    """An adapter, checked like one from the Hub, and its weights. Raises `UserError` if they are not finite or all zero."""
    found = fetch(list_files(str(folder)))
    tensors = load_file(folder / ADAPTER_WEIGHTS)
    if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
        raise UserError(f"the adapter in {str(folder)!r} has weights that are not finite: expected numbers; train it again")
    changing = [tensor for name, tensor in tensors.items() if "lora_A" not in name]  # A starts random, B starts at zero
    if not any(tensor.any() for tensor in changing):
        raise UserError(f"the adapter in {str(folder)!r} is all zero: expected a trained adapter that changes its base")
    return found, tensors


def public_config(config: TrainConfig, base: Base, init_adapter_commit: str = "", sft_commit: str = "") -> TrainConfig:
    """The configuration as anyone can run it, without anything specific to this machine.

    Repositories are pinned to a commit. A content hash replaces the path of a first adapter or of a data set on this machine.
    """
    sources: dict[str, Any] = {"init_adapter": init_adapter_commit, "sft": sft_commit}
    for field, commit in sources.items():
        name = sources[field] = getattr(config, field)
        if name and name not in built_in_adapters():
            sources[field] = f"{LOCAL}{commit}" if len(commit) == 64 else f"{split_revision(name, None)[0]}@{commit}"
    return dataclasses.replace(
        config,
        model=f"{base.repo_id}@{base.commit}",
        **sources,
        chat_template=TEMPLATE if config.chat_template else "",
        report_to="none",
        threads=0,
    )


def published_results(run: FinishedRun, config: TrainConfig, base: Base) -> dict[str, Any]:
    """The numbers of the card as JSON data."""
    summary, replayed = run.summary, run.summary.get("replayed_test_episode")
    tables = [{"game": table.game.id, "game_hash": task_hash(table.game), "players": table.players} for table in run.games]
    players = tables[0].pop("players")
    test = {"split": "test", "episodes": config.test_episodes, "temperature": config.eval_temperature, "replayed": replayed}
    return {
        "format": FORMAT,
        **tables[0],
        "base": base.repo_id,
        "base_commit": base.commit,
        "seed": config.seed,
        "adapter_update": summary["adapter_update"],
        "test": {**test, "players": players},
        **({"other_games": tables[1:]} if tables[1:] else {}),
        **({"over_seeds": records(run.over_seeds)} if run.over_seeds else {}),
        "evaluations": [task_score(result) for result in run.results],
        "seconds": {part: summary[f"seconds_{part}"] for part in ("acting", "training", "evaluating")},
        "memory_mb": run.memory_mb,
        **{name: summary[name] for name in ("processes", "threads", "hardware", "versions")},
        "msgrpo_hub": __version__,
    }


def as_json(value: Any) -> str:
    """JSON for a published file; records become objects, and numbers must be finite."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False, default=dataclasses.asdict)
    return f"{text}\n"
