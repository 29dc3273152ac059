"""What an evaluation would cost: episodes, tokens, memory, time and price, before anything is played or stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgrpo_hub.agent.prompt_formats import PromptFormat, find_format
from msgrpo_hub.downloads.names import split_adapter
from msgrpo_hub.evaluation.probe import Probe, probe_tasks
from msgrpo_hub.evaluation.runner import asked_in, known_tasks, missing_episodes
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.task_sample import PLAY, Count, Price, Sample, TaskEstimate, sample
from msgrpo_hub.games import make_game
from msgrpo_hub.models.costs import FLOAT32, shape_of
from msgrpo_hub.players.identity import Player, identify
from msgrpo_hub.players.registry import SCRIPTED, entry_point
from msgrpo_hub.players.sample_play import prompts_of
from msgrpo_hub.players.settings import PlayerSettings

PROBE_SECONDS = 10.0
"""Seconds of a player's probe, shared by the tasks."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What the evaluation of one player would cost."""

    player: str
    weight_bytes: int | None
    """Memory of the weights; None for a player without weights here."""
    dtype: str | None
    """Type of the weights in memory; `mixed` if each tensor keeps its own."""
    calls_at_once: int
    """Replies that are computed or requested together."""
    tasks: tuple[TaskEstimate, ...]
    assumptions: tuple[str, ...]
    """What the numbers assume, in sentences."""
    batch_bytes: float | None = None
    """Memory of a batch's keys and values, computed; None for a player without, or whose shape is not that of a usual decoder."""


def estimate(
    name: str,
    suite: Suite,
    output_dir: Path,
    settings: PlayerSettings,
    batch_size: int,
    price: Price | None = None,
    seconds: float = PROBE_SECONDS,
) -> Estimate:
    """What `evaluate` would cost for one player. Only the probe plays, and nothing is stored.

    Args:
        name: of the player.
        suite: the tasks.
        output_dir: where earlier results may lie, whose episodes are not played again.
        settings: how models act.
        batch_size: episodes that are played at a time.
        price: rate of a server.
        seconds: time for the probe of a player that plays on this machine.

    Raises:
        UserError: as for `evaluate`.
    """
    plan = _Plan(
        name=name,
        suite=suite,
        tasks=known_tasks(name, suite),
        output_dir=output_dir,
        settings=settings,
        batch_size=batch_size,
        seconds=seconds,
    )
    if name.partition(":")[0] in ("endpoint", "provider"):
        return _served(plan, price)
    if name in SCRIPTED or name.startswith("dqn:") or entry_point(name):
        return _without_tokens(plan)
    return _language_model(plan)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What would be played; the fields are the arguments of `estimate`."""

    name: str
    suite: Suite
    tasks: Sequence[str]
    output_dir: Path
    settings: PlayerSettings
    batch_size: int
    seconds: float

    def missing(self, player: Player) -> dict[str, list[int]]:
        """Task → the episodes that a player still has to play."""
        return {task: missing_episodes(player, self.suite, task, self.output_dir, self.batch_size) for task in self.tasks}

    def at_once(self, missing: Mapping[str, Sequence[int]]) -> int:
        """The episodes in a batch."""
        return min(self.batch_size, max(map(len, missing.values())))

    def samples(self, prompt_format: PromptFormat, count: Count | None) -> dict[str, Sample]:
        """Task → its scripted play, with prompts counted in tokens."""
        return {task: sample(self.suite, task, prompt_format, count) for task in self.tasks}


def _served(plan: _Plan, price: Price | None) -> Estimate:
    from msgrpo_hub.models.context import prompt_lengths  # loads torch only when needed
    from msgrpo_hub.models.token_counts import CHARACTERS_PER_TOKEN, lengths_by_characters, served_tokenizer

    player: Any = identify(plan.name, plan.settings)
    model, limit = player.policy.server.model, plan.settings.max_new_tokens
    encoder = served_tokenizer(player.policy.server, plan.settings.chat_template_kwargs)
    samples = plan.samples(asked_in(player, plan.suite), partial(prompt_lengths, encoder) if encoder else lengths_by_characters)
    missing = plan.missing(player)
    at_once = min(plan.settings.concurrency, plan.at_once(missing))
    counted = f"counted with the tokenizer of {model}" if encoder else f"one per {CHARACTERS_PER_TOKEN:g} characters"
    return Estimate(
        player=player.name,
        weight_bytes=None,
        dtype=None,
        calls_at_once=at_once,
        tasks=tuple(
            samples[task].estimate(task, len(missing[task]), reply=limit, per_call=None, price=price) for task in plan.tasks
        ),
        assumptions=(
            PLAY,
            f"Prompt tokens: {counted}.",
            f"Replies: of full length, {limit} tokens (--max-new-tokens); shorter ones cost less.",
            f"Time: up to the server; it gets {at_once} calls at a time (--concurrency).",
        ),
    )


def _without_tokens(plan: _Plan) -> Estimate:
    player = identify(plan.name, plan.settings)
    samples = plan.samples(asked_in(player, plan.suite), None)
    missing = plan.missing(player)
    probes = _probes(plan, player, missing)
    return Estimate(
        player=player.name,
        weight_bytes=None,
        dtype=None,
        calls_at_once=plan.at_once(missing),
        tasks=tuple(_row(samples[task], task, missing[task], probes.get(task), None) for task in plan.tasks),
        assumptions=(PLAY, *_timed(probes)),
    )


def _language_model(plan: _Plan) -> Estimate:
    from msgrpo_hub.models.context import prompt_lengths  # loads torch only when needed
    from msgrpo_hub.models.devices import free_memory
    from msgrpo_hub.models.model_files import open_model

    settings, default, limit = plan.settings, find_format(plan.suite.prompt_format), plan.settings.max_new_tokens
    base, adapter = split_adapter(plan.name)
    files = open_model(
        base,
        adapter or None,
        chat_template=settings.chat_template or None,
        prompt_format=settings.chosen_format,
        chat_template_kwargs=settings.chat_template_kwargs,
    )
    expected = prompts_of([make_game(task) for task in plan.tasks], default)
    files.check_context(expected(files.prompt_format), limit)
    samples = plan.samples(files.prompt_format or default, partial(prompt_lengths, files.encoder))
    size, free = files.weight_bytes(settings.dtype), free_memory(settings.device)
    shown, missing, probes = plan.name, {task: list(range(plan.suite.episodes * plan.suite.repeats)) for task in plan.tasks}, {}
    timed = [f"No time: the weights do not fit into {free / 1e9:.1f} GB of free memory, so no probe was played."]
    if size <= free or settings.load_in_4bit or settings.device_map != "none":
        player = identify(plan.name, settings, expected)
        shown, missing = player.name, plan.missing(player)
        probes = _probes(plan, player, missing)
        timed = _timed(probes)
    measured = any(probe.reply_tokens is not None for probe in probes.values())
    length = "as long as in the probe" if measured else f"of full length, {limit} tokens (--max-new-tokens)"
    return Estimate(
        player=shown,
        weight_bytes=size,
        dtype=str(files.dtype(settings.dtype) or "mixed").removeprefix("torch."),
        calls_at_once=plan.at_once(missing),
        tasks=tuple(_row(samples[task], task, missing[task], probes.get(task), limit) for task in plan.tasks),
        assumptions=(PLAY, f"Replies: {length}.", *timed, _MEMORY[settings.load_in_4bit]),
        batch_bytes=_batch_bytes(files, settings, plan.at_once(missing), samples.values()),
    )


def _batch_bytes(files: Any, settings: PlayerSettings, rows: int, samples: Iterable[Sample]) -> float | None:
    """Memory of the keys and values of so many full replies to mean prompts; no prompt is shared."""
    tokens = max(((of_task.fixed or 0) / of_task.turns for of_task in samples), default=0.0) + settings.max_new_tokens
    dtype, shape = files.dtype(settings.dtype), shape_of(files.config)
    return shape.cache_bytes(rows * tokens, dtype.itemsize if dtype else FLOAT32) if shape else None


_MEMORY = {
    False: "Memory: of the weights, and of the keys and values of a batch, which is computed; a forward pass takes some more.",
    True: "Memory: of the weights before they are quantised to 4 bits, which leaves about a quarter of 16 bits.",
}


def _row(sample: Sample, task: str, missing: Sequence[int], timed: Probe | None, limit: int | None) -> TaskEstimate:
    reply = limit if timed is None or timed.reply_tokens is None or limit is None else timed.reply_tokens
    per_call = timed.seconds_per_call if timed else None if missing else 0.0
    return sample.estimate(task, len(missing), reply=reply, per_call=per_call)


def _probes(plan: _Plan, player: Player, missing: Mapping[str, Sequence[int]]) -> dict[str, Probe]:
    """One probe per task that has episodes left; they share the time."""
    keys = {task: plan.suite.episode_keys(task) for task in plan.tasks if missing[task]}
    own = {task: [of_task[index][0] for index in missing[task]] for task, of_task in keys.items()}
    games = {task: make_game(task) for task in keys}
    return probe_tasks(games, own, player.policy, asked_in(player, plan.suite), plan.batch_size, plan.seconds)


_FEW = 2
"""So few replies at a time say little of a batch."""


def _timed(probes: Mapping[str, Probe]) -> list[str]:
    """How the time was measured."""
    if not probes:
        return []
    least = min(probes.values(), key=lambda probe: probe.rows)
    if least.cut_at:
        how = f"with single replies, cut at {least.cut_at} tokens and extrapolated; batches take less per reply"
    elif not least.is_full:
        how = f"with {least.rows} repl{'y' if least.rows == 1 else 'ies'} at a time, extrapolated to full batches"
        how += ", which may take a small part of it" if least.rows <= _FEW else ""
    else:
        how = f"with batches of {least.rows} replies"
    return [f"Time: from a probe on this machine, {how}."]
