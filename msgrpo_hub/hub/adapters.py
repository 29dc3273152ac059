"""Pushes an adapter to the Hub: one commit with weights, card, configuration, results and replay that anyone can load.

Everything is first written into a folder, from typed data. Then the folder is pushed; a dry run stops before that.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import LoraConfig
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from msgrpo_hub.agent.prompt_formats import THINK_ACTION
from msgrpo_hub.downloads.fetching import TEMPLATE, TOKENIZER_FILES
from msgrpo_hub.downloads.inspection import check_adapter, parse
from msgrpo_hub.downloads.names import built_in_adapters, split_revision
from msgrpo_hub.downloads.play_settings import PLAY_SETTINGS, play_settings_of
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.suites import task_hash
from msgrpo_hub.fields import checked
from msgrpo_hub.games import make_game
from msgrpo_hub.hub.adapter_card import LOCAL, AdapterCard, Base, GameTable
from msgrpo_hub.hub.adapter_metadata import render_adapter
from msgrpo_hub.hub.bases import find_base, local_base
from msgrpo_hub.hub.repo_files import PICKLED
from msgrpo_hub.hub.rollout_reading import check_rollouts
from msgrpo_hub.hub.run_results import RESULTS, FinishedRun, read_run, task_score
from msgrpo_hub.hub.uploading import Pushed, Target, check_repo_id, check_token, upload
from msgrpo_hub.models.adapter_check import adapter_effect
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.rendering.learning_svg import learning_svg
from msgrpo_hub.storage.files import read_json
from msgrpo_hub.training.config import TrainConfig, to_toml
from msgrpo_hub.training.metrics import read_metrics
from msgrpo_hub.training.rollout_log import run_origin
from msgrpo_hub.training.seeds import records

FORMAT = "msgrpo-adapter-v1"
"""Tag of every pushed adapter. It versions the set of files and their meaning."""

WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
CURVE = "curve.svg"
"""The learning curve that the card shows; curves.png is the run's own picture of everything."""

_OWNED = (
    WEIGHTS,
    SETTINGS,
    PLAY_SETTINGS,
    TEMPLATE,
    *TOKENIZER_FILES,
    "README.md",
    "config.toml",
    "results.json",
    "test_episodes.parquet",
    "replay.svg",
    "curves.png",
    CURVE,
    f"{RESULTS}/",
)
"""Files that a push replaces: those of an earlier push that it does not have are removed."""


@checked
def push_adapter(
    output_dir: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    token: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
    base: str | None = None,
    rollouts: str | None = None,
) -> Pushed:
    """Pushes the adapter of a finished run, with its card and its results, in one commit.

    Pushing the same files again makes no commit. After a failure the same call completes the push.

    Args:
        output_dir: folder of the run. Results of `msgrpo eval` with this adapter in its `results/` are pushed too.
        repo_id: `USER/NAME`; created if missing.
        private: visibility of a new repository; None uses the Hub's setting. An existing repository must agree.
        revision: a branch; None is main.
        token: None uses the token of `hf auth login` or HF_TOKEN.
        create_pr: open a pull request instead.
        commit_message: title of the commit.
        base: `USER/NAME[@revision]` that holds the base, if the run was trained on the built-in base or on a folder.
        rollouts: `USER/NAME` of a public dataset with the training episodes of this run, for the card.

    Returns:
        The repository, the commit and what was sent. The commit is tagged `step-N` and with the format's version.

    Raises:
        UserError: the run is not finished; the adapter has no effect; others cannot load the base; a file must not leave this
            machine; or the Hub refuses.
    """
    target = Target(repo_id=repo_id, private=private, revision=revision, token=token, create_pr=create_pr)
    with TemporaryDirectory() as folder:
        run = stage_adapter(output_dir, repo_id, Path(folder), base=base, rollouts=rollouts, token=token)
        message = commit_message or f"Adapter for {', '.join(run.players)}, step {run.adapter_update}"
        tags = (f"step-{run.adapter_update}", FORMAT)
        return upload(Path(folder), target, message=message, tags=tags, marker=SETTINGS, replaces=_OWNED)


def check_push(config: TrainConfig, repo_id: str, base: str | None = None, token: str | None = None) -> None:
    """Checks before a training what a push after it needs: the repository's name, the token and a published base.

    Raises:
        UserError: `push_adapter` would raise it.
    """
    check_token(Target(repo_id=repo_id, token=token))
    find_base(config, base, token=token)


def stage_adapter(
    output_dir: str | Path,
    repo_id: str,
    folder: Path,
    *,
    base: str | None = None,
    rollouts: str | None = None,
    token: str | None = None,
) -> FinishedRun:
    """Writes the content of the repository into a folder and returns the run. Arguments as for `push_adapter`."""
    run = read_run(Path(output_dir))
    check_repo_id(repo_id)
    settings, tensors = read_adapter(run.folder.adapter)
    published = find_base(run.config, base, run.trained_on, token)
    if rollouts:
        check_rollouts(rollouts, run_origin(run.folder).run, token)
    check_effect(run, published)
    played = play_settings_of(read_json(run.folder.adapter / PLAY_SETTINGS, "the play settings of an adapter"), str(output_dir))
    config = dataclasses.replace(run.config, chat_template_kwargs=played.chat_template_kwargs)
    config = public_config(config, published, run.init_adapter_commit)
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    _write_json(folder / SETTINGS, public_settings(settings, published))
    (folder / "config.toml").write_text(to_toml(config), encoding="utf-8")
    for name, path in run.files().items():
        if path.is_symlink():
            raise UserError(f"{str(path)!r} is a link and is not pushed: expected a regular file")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(path.read_bytes())
    card = adapter_card(run, repo_id, config, published, rollouts)
    if card.has_curves:
        (folder / CURVE).write_text(learning_svg(read_metrics(run.folder.metrics), card.marks), encoding="utf-8")
    _write_json(folder / "results.json", published_results(card))
    (folder / "README.md").write_text(render_adapter(card), encoding="utf-8")
    return run


def read_adapter(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Settings and weights of an adapter in PEFT's layout.

    Raises:
        UserError: the folder has pickled files, settings that run foreign code, or weights that are not finite or all zero.
    """
    if pickled := [path.name for path in sorted(folder.rglob("*")) if path.suffix in PICKLED]:
        raise UserError(f"{str(folder / pickled[0])!r} can run code when it is loaded: expected {WEIGHTS} and no pickled file")
    try:
        settings = parse((folder / SETTINGS).read_bytes(), SETTINGS, str(folder))
        tensors = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"no adapter in {str(folder)!r} ({error}): expected {SETTINGS} and {WEIGHTS}") from error
    check_adapter(settings, str(folder))
    if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
        raise UserError(f"the adapter in {str(folder)!r} has weights that are not finite: expected numbers; train it again")
    changing = [tensor for name, tensor in tensors.items() if "lora_A" not in name]  # A starts random, B starts at zero
    if not any(tensor.any() for tensor in changing):
        raise UserError(f"the adapter in {str(folder)!r} is all zero: expected a trained adapter that changes its base")
    return settings, tensors


def check_effect(run: FinishedRun, base: Base) -> None:
    """Refuses an adapter that does not change the log-probabilities of its base."""
    source = local_base(run.config) or base.repo_id
    agent = LanguageModel.from_pretrained(
        str(source),
        adapter=str(run.folder.adapter),
        revision=base.commit if source == base.repo_id else None,
        dtype=run.config.dtype,
        prompt_format=THINK_ACTION,  # any format shows an effect; a custom format cannot be found by its stored name
    )
    if not adapter_effect(agent) > 0:
        raise UserError(
            f"the adapter in {str(run.folder.adapter)!r} does not change its base: "
            "both give the same log-probabilities after a probe prompt"
        )


def public_settings(settings: dict[str, Any], base: Base) -> dict[str, Any]:
    """The adapter's settings that PEFT knows, with the published base and without classes that `AutoPeftModel` would import."""
    known = {field.name for field in dataclasses.fields(LoraConfig)}
    own = {name: value for name, value in settings.items() if name in known}
    return own | {"base_model_name_or_path": base.repo_id, "revision": base.commit, "auto_mapping": None}


def public_config(config: TrainConfig, base: Base, init_adapter_commit: str = "") -> TrainConfig:
    """The configuration as anyone can run it, without anything specific to this machine.

    The base and the first adapter are named by repository and commit. An adapter in a folder is named by its hash alone.
    """
    template = TEMPLATE if config.chat_template else ""
    init_adapter = config.init_adapter
    if init_adapter and init_adapter not in built_in_adapters():
        name, _ = split_revision(init_adapter, None)
        init_adapter = f"{LOCAL}{init_adapter_commit}" if len(init_adapter_commit) == 64 else f"{name}@{init_adapter_commit}"
    return dataclasses.replace(
        config,
        model=f"{base.repo_id}@{base.commit}",
        init_adapter=init_adapter,
        chat_template=template,
        report_to="none",
        threads=0,
    )


def adapter_card(run: FinishedRun, repo_id: str, config: TrainConfig, base: Base, rollouts: str | None) -> AdapterCard:
    """The card of a run."""
    games = {name: make_game(name) for name in run.players}
    return AdapterCard(
        repo_id=repo_id,
        games=tuple(
            GameTable(
                game=game,
                game_hash=task_hash(game),
                players=run.players[name],
                boards=run.boards.get(name),
                verdict=run.verdicts.get(name),
            )
            for name, game in games.items()
        ),
        config=config,
        base=base,
        scores=tuple(task_score(result) for result in run.results),
        has_curves=run.folder.curves.exists(),
        rollouts=rollouts,
        **run.facts(),
    )


def published_results(card: AdapterCard) -> dict[str, Any]:
    """The numbers of the card as JSON data."""
    config, (first, *others) = card.config, card.games
    more = {"other_games": [{"game": table.game.id, "game_hash": table.game_hash, **_rows(table)} for table in others]}
    return {
        "format": FORMAT,
        "game": first.game.id,
        "game_hash": first.game_hash,
        "base": card.base.repo_id,
        "base_commit": card.base.commit,
        "seed": config.seed,
        "adapter_update": card.adapter_update,
        "test": {
            "split": "test",
            "episodes": config.test_episodes,
            "temperature": config.eval_temperature,
            "replayed": card.replayed,
            **_rows(first),
        },
        **(more if others else {}),
        **({"over_seeds": records(card.over_seeds)} if card.over_seeds else {}),
        "evaluations": [dataclasses.asdict(score) for score in card.scores],
        "seconds": dict(card.seconds),
        "processes": card.processes,
        "threads": card.threads,
        "memory_mb": card.memory_mb,
        "hardware": card.hardware,
        "versions": dict(card.versions),
        "msgrpo_hub": card.version,
    }


def _rows(table: GameTable) -> dict[str, Any]:
    return {"players": {name: dataclasses.asdict(row) for name, row in table.players.items()}}


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
