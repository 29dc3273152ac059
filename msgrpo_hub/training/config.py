"""The configuration of a training run: one frozen dataclass, read from presets, flags and TOML."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_type_hints

import tomli_w

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, THINK_ACTION
from msgrpo_hub.credit import CREDITS
from msgrpo_hub.downloads.inspection import LARGEST_RANK, Scalar, check_switches
from msgrpo_hub.errors import UserError, shown, unknown
from msgrpo_hub.fields import Count, Range, Seed, check, check_fields, is_import, resolve
from msgrpo_hub.games import make_game
from msgrpo_hub.games.game import has_scene
from msgrpo_hub.models.load_options import Device, EngineName, ReplyLength, Temperature
from msgrpo_hub.msgrpo import ADVANTAGE_SCALES, LOSS_NORMALISATIONS, SAMPLERS
from msgrpo_hub.players.registry import KNOWS, can_play
from msgrpo_hub.training.presets import PRESETS

Episodes = Annotated[int, Range(0, 100_000)]
Updates = Annotated[int, Range(0, 1_000_000)]
Factor = Annotated[float, Range(0, 1_000_000)]

CHOICES: dict[str, Mapping[str, object]] = {
    "sampler": SAMPLERS,
    "credit": CREDITS,
    "advantage_scale": ADVANTAGE_SCALES,
    "loss_normalisation": LOSS_NORMALISATIONS,
    "prompt_format": PROMPT_FORMATS,
}
"""Fields that name a variant: a key of these, or `module:object` if typed on this machine."""

RESUMABLE_FIELDS = ("report_to", "show_replies", "threads", "max_rows", "token_budget", "gradient_checkpointing", "device")
"""Fields that may change when a run resumes."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All settings of a run. Symbols in brackets are the paper's."""

    game: str = "FrozenLake-NotSlippery-v1"
    """Id of the game (see `msgrpo games`), or several, as in `A,B` or `A=3,B=1`: groups follow these weights."""
    model: str = "pocket"
    """Base model: `pocket`, a Hub id or a folder; `name@revision` is allowed."""
    init_adapter: str = ""
    """LoRA adapter to start from: a built-in name such as `lake`, a Hub id or a folder; by default a new adapter."""
    teacher: Literal["none", "auto", "greedy", "planner", "optimal"] = "none"
    """Scripted player for behaviour cloning in the first updates; `auto` is `optimal`, or else `greedy`."""
    taught: Updates = 0
    """Number of updates with behaviour cloning (SFT), from the first; a teacher plays one episode per group in each."""
    teacher_thoughts: bool = False
    """Include thoughts in the targets: a description of the board instead of the base's own thoughts, if its reply has any."""
    sft: str = ""
    """Data set for the `taught` updates in place of a teacher: rollouts or chat messages, as a Hub id, a folder or a file."""
    sft_epochs: Count = 1
    """Passes over this data set, shared out among the `taught` updates."""
    sft_learning_rate: Annotated[float, Range(0, 1e30)] = 0.0
    """Peak learning rate of the `taught` updates; 0: `learning_rate`. Rewards need a lower one than SFT."""
    seed: Seed = 0
    """Random seed for initial states, sampling and adapter initialisation."""
    updates: Count = 100
    """Number of updates."""
    groups: Annotated[int, Range(1, 10_000)] = 8
    """Groups (initial states) per update; advantages stay per group."""
    group_size: Annotated[int, Range(2, 10_000)] = 32
    """Episodes per group [G]."""
    selected_per_group: Annotated[int, Range(1, 10_000)] = 8
    """Episodes of each group that the update learns from [G']."""
    sampler: str = "absolute-advantage"
    """How episodes are selected."""
    credit: str = "whole-episode"
    """How a return becomes an advantage of each step."""
    advantage_scale: str = "std"
    """Divisor of a group's centred returns: their standard deviation, or 1."""
    loss_normalisation: str = "token-mean"
    """Unit of equal weight in the loss: token, step or episode."""
    minibatches: Count = 1
    """Optimiser steps per update, each on its share of the selected episodes. With 1 the ratio is 1, nearly in bfloat16."""
    staleness: Annotated[int, Range(0, 1)] = 0
    """With 1, vLLM servers sample the next update during this one, with weights that are one update old."""
    format_penalty: Factor = 1.0
    """Subtracted from the return for each unparsed reply [-Φ], only in training."""
    epsilon_low: Factor = 0.2
    """Clips the ratio from below [ε_low]; no effect if the ratio is 1 (`minibatches` 1 and no vLLM)."""
    epsilon_up: Factor = 0.2
    """Clips the ratio from above [ε_up]; no effect if the ratio is 1."""
    beta: Factor = 0.01
    """Weight of the KL penalty towards the base model [β]; 0 saves the reference pass."""
    learning_rate: Annotated[float, Range(0, 1e30, open=True)] = 1e-5
    """Peak learning rate of AdamW."""
    learning_rate_end: Annotated[float, Range(0, 1)] = 1.0
    """Final share of the learning rate; the decay is linear, from the first update on."""
    warmup: Updates = 0
    """Updates of linear warm-up."""
    gradient_clip: Annotated[float, Range(0, 1e30, open=True)] = 1.0
    """Largest gradient norm."""
    lora_targets: str = "all-linear"
    """Layers that get LoRA: all linear layers but the output head, or names of modules, as in q_proj,v_proj."""
    lora_rank: Annotated[int, Range(1, LARGEST_RANK)] = 16
    """Rank of the LoRA matrices."""
    lora_alpha: Count = 32
    """LoRA's alpha; the update is scaled by alpha / rank."""
    lora_dropout: Annotated[float, Range(0, 0.99)] = 0.0
    """Dropout on LoRA's inputs in training only, so the ratio is then not 1."""
    rslora: bool = False
    """Scale by alpha / √rank instead, for large ranks (rank-stabilised LoRA)."""
    temperature: Annotated[float, Range(0.01, 1000)] = 1.0
    """Sampling temperature while training."""
    eval_temperature: Temperature = 1.0
    """Sampling temperature in evaluation."""
    max_new_tokens: ReplyLength = 64
    """Limit of a reply, in tokens."""
    eval_every: Updates = 20
    """Updates between evaluations on the validation episodes; 0 means none."""
    eval_episodes: Episodes = 50
    """Number of validation episodes, the same each time."""
    test_episodes: Episodes | Literal["auto"] = "auto"
    """Number of test episodes of the final table; `auto`: 20 to 200, in a quarter of the run's time; 0 means no table."""
    keep: Literal["last", "best"] = "last"
    """Weights for adapter/ and the final table: the last, or the best on the validation episodes."""
    token_budget: Annotated[int, Range(0, 1_000_000_000)] = 0
    """Maximum tokens per forward and backward pass of training, without the shared rules; 0: by the model's size.

    It bounds memory and changes the gradient by rounding only.
    """
    max_rows: Annotated[int, Range(1, 1_000_000_000)] = 512
    """Maximum samples per batch in rollouts; bounds memory and changes results by rounding only."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the base weights; the adapter is always float32. Not float16: gradients underflow."""
    load_in_4bit: bool = False
    """Quantise the linear layers of the base to 4 bits (NF4) with bitsandbytes: QLoRA."""
    device: Device = "auto"
    """Device of the model; `auto` is the GPU, or the CPU if there is none or the model is tiny."""
    engine: EngineName = "auto"
    """`fast` shares prefixes, `plain` uses the model's own forward; `auto` is fast if a check finds it exact."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
    chat_template: str = ""
    """File with a Jinja chat template, stored with the adapter; by default the template of init_adapter or the base."""
    chat_template_kwargs: dict[str, Scalar] = field(default_factory=dict)
    """Variables of the chat template as JSON, such as {"enable_thinking": false}; stored with the adapter."""
    prompt_format: str = THINK_ACTION.name
    """Format of prompts and replies: a built-in name, or module:object."""
    report_to: Literal["none", "tensorboard", "trackio", "wandb", "all"] = "none"
    """Tracker for the metrics, besides metrics.jsonl."""
    save_rollouts: bool = False
    """Save every training episode in the output folder, for `msgrpo push rollouts`."""
    show_replies: Updates = 0
    """Updates between two sample replies on standard error; 0 means none."""
    threads: Annotated[int, Range(0, 1024)] = 0
    """CPU threads of torch; 0 means one for a tiny model, else all free cores; a resumed run keeps its number."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name, kind in get_type_hints(TrainConfig).items():
            if type(value := getattr(self, name)) is int and float in (kind, *get_args(kind)):
                object.__setattr__(self, name, float(value))  # TOML reads 1.0: equal runs have equal fingerprints
        parse_games(self.game)
        check_switches(self.chat_template_kwargs, "in chat_template_kwargs")
        for name in CHOICES:
            if not is_import(getattr(self, name)):
                self.choice(name)
        if self.eval_every and self.eval_episodes < 1:
            raise UserError(f"eval_episodes = {self.eval_episodes}: expected at least 1, or --eval-every 0")
        if (selected := self.selected_per_group) > self.group_size:
            raise UserError(f"selected_per_group = {selected} of group_size = {self.group_size}: expected G' <= G; lower it")
        if not (self.taught or self.teacher != "none" or self.teacher_thoughts or self.sft):
            return
        given, games = f"teacher = {self.teacher!r}", [make_game(name) for name in parse_games(self.game)]
        if self.sft and (self.teacher != "none" or self.teacher_thoughts or not self.taught):
            expected = "updates for the data and no teacher, as in --taught 20 --teacher none --no-teacher-thoughts"
            raise UserError(f"sft = {self.sft!r} with {given} and taught = {self.taught}: expected {expected}")
        with_scenes = all(has_scene(game) and ":" not in game.id for game in games)
        if self.teacher_thoughts and not (self.taught and self.prompt_format == THINK_ACTION.name and with_scenes):
            expected = f"expected a teacher, lakes or Snakes without variants, and {THINK_ACTION.name!r}"
            raise UserError(f"teacher_thoughts with {given}, {self.game!r} and {self.prompt_format!r}: {expected}")
        if (self.teacher == "none" and not self.sft) or self.taught == 0:
            raise UserError(f"{given} with taught = {self.taught}: expected both or neither, as in --teacher auto --taught 20")
        if unknown_to := [game for game in games if not self.sft and not can_play(self.teaching_player, game)]:
            able = " or ".join(name for name in KNOWS if can_play(name, unknown_to[0])) or "a game of ours"
            raise UserError(f"{given} does not know {unknown_to[0].id}: expected {able}, or --teacher none --taught 0")
        if self.taught > self.updates:
            raise UserError(f"taught = {self.taught} of updates = {self.updates}: expected at most all; raise --updates")
        if self.save_rollouts:
            raise UserError("save_rollouts with a teacher or sft, whose replies are not the policy's: expected one of the two")

    @property
    def keeps_best(self) -> bool:
        """Whether the run ends with its best weights on the validation episodes."""
        return self.keep == "best" and self.eval_every > 0

    @property
    def teaching_player(self) -> str:
        """The scripted player of the teacher."""
        return (best_teacher(self.game) or "optimal") if self.teacher == "auto" else self.teacher

    def episodes(self, updates: int) -> int:
        """The number of episodes that the first `updates` updates play; in a taught update, a teacher plays one per group."""
        taught = min(updates, self.taught)
        return self.groups * (taught * (not self.sft) + (updates - taught) * self.group_size)

    def choice(self, name: str) -> Any:
        """The variant that a field of `CHOICES` names. Only this method imports `module:object`."""
        return resolve(name.replace("_", "-"), getattr(self, name), CHOICES[name], may_import=True)


@cache
def parse_games(text: str) -> dict[str, int]:
    """`A,B` or `A=3,B=1` → game id → weight, 1 by default. Raises `UserError` for unknown or repeated games and wrong weights."""
    weights: dict[str, int] = {}
    for part in text.split(","):
        name, given, weight = part.strip().partition("=")
        if name in weights:
            raise UserError(f"game = {text!r} names {name} twice: expected each game once, with a weight as in {name}=2")
        if given and not (weight.isascii() and weight.isdigit() and len(weight) <= 4 and 1 <= int(weight) <= 1000):
            raise UserError(f"game = {shown(text)}: expected weights from 1 to 1000, as in {name}=2")
        weights[make_game(name).id] = int(weight or 1)
    return weights


def best_teacher(games: str) -> str:
    """`optimal`, or else `greedy`, if that player knows all of the games; otherwise empty."""
    made = [make_game(name) for name in parse_games(games)]
    return next((player for player in ("optimal", "greedy") if all(can_play(player, game) for game in made)), "")


def fixed_fields(config: TrainConfig) -> dict[str, Any]:
    """The fields that may not change when a run resumes, with their values."""
    return {name: value for name, value in asdict(config).items() if name not in RESUMABLE_FIELDS}


def fingerprint(config: TrainConfig) -> str:
    """Identifies a run by its fixed fields; its checkpoint stores it."""
    return hashlib.sha256(repr(sorted(fixed_fields(config).items())).encode()).hexdigest()


def preset(name: str) -> TrainConfig:
    """The configuration of a preset."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return TrainConfig(**PRESETS[name])


def load_config(path: Path, typed: Mapping[str, Any] = MappingProxyType({})) -> TrainConfig:
    """Reads a configuration to train with from a TOML file, which may be foreign; missing fields have their defaults.

    `typed` has the values typed on this machine; only these may name code to import, a `module:object` of the file may not.
    Raises `UserError` for a file that cannot be read, an unknown or ill-typed field, or code that was not typed.
    """
    config = stored_config(path)
    for name in CHOICES:
        if is_import(given := str(getattr(config, name))) and name not in typed:
            flag = f"--{name.replace('_', '-')} {given}"
            raise UserError(f"{name} = {given!r} in {path} would import code: expected {flag} typed as well")
    return replace(config, **{name: typed[name] for name in CHOICES if name in typed})


def stored_config(path: Path) -> TrainConfig:
    """The configuration of a stored run, for reading only: nothing is imported, and code that it names may be missing."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # editors on Windows write a byte order mark
    except OSError as error:
        raise UserError(f"cannot read the configuration {str(path)!r}: {error.strerror}; expected a TOML file") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or thousands of digits or brackets
        raise UserError(f"{str(path)!r} is not valid TOML: {error}") from error
    return from_values(values, str(path))


def from_values(values: dict[str, Any], source: str = "") -> TrainConfig:
    """A configuration from plain values, checked; messages name their source, such as a file."""
    hints = get_type_hints(TrainConfig, include_extras=True)
    for name, value in values.items():
        if name not in hints:
            raise unknown(f"field in {source}", name, hints)
        check(name, value, hints[name], source and f" in {source}")
    return TrainConfig(**values)


def to_toml(config: TrainConfig) -> str:
    """The configuration as TOML; `load_config` reads it back unchanged."""
    return tomli_w.dumps({name: value for name, value in asdict(config).items() if value != {}})
