"""The configuration of a training run: one frozen dataclass, its presets, and TOML that runs again."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_type_hints

import tomli_w

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, THINK_ACTION
from msgrpo_hub.choices import is_import, resolve
from msgrpo_hub.credit import CREDITS
from msgrpo_hub.downloads.inspection import LARGEST_RANK
from msgrpo_hub.downloads.play_settings import Scalar, check_switches
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.fields import Count, Range, Seed, check, check_fields
from msgrpo_hub.games import make_game
from msgrpo_hub.games.scene import has_scene
from msgrpo_hub.models.load_options import Device, EngineName, ReplyLength, Temperature
from msgrpo_hub.msgrpo import ADVANTAGE_SCALES, LOSS_NORMALISATIONS, SAMPLERS
from msgrpo_hub.players.registry import KNOWS, can_play
from msgrpo_hub.training.curriculum import parse_games
from msgrpo_hub.training.paper import PRESETS as PAPER_PRESETS
from msgrpo_hub.training.paper import preset_values
from msgrpo_hub.training.quickstart import QUICKSTART_PRESETS

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
"""Fields that name a variant: a key of these, or `module:object` where it is typed on this machine."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that decides a run. Symbols in brackets are the paper's."""

    game: str = "FrozenLake-NotSlippery-v1"
    """Id of the game, as `msgrpo games` lists them; or several, as `A,B` or `A=3,B=1`: groups are dealt out by these weights."""
    model: str = "pocket"
    """Base model: `pocket`, a Hub id or a folder; `name@revision` is allowed."""
    init_adapter: str = ""
    """LoRA adapter to begin with, a built-in name such as `lake`, a Hub id or a folder; by default a fresh one."""
    teacher: Literal["none", "auto", "greedy", "planner", "optimal"] = "none"
    """Scripted player whose moves the first updates are taught, by maximum likelihood; `auto` is `optimal`, or else `greedy`."""
    taught: Updates = 0
    """How many of the updates are taught, from the first; each plays one episode per group and learns at `temperature`."""
    teacher_thoughts: bool = False
    """Teach thoughts too, in place of the base's: what is where, as `pocket` thinks it, and where the opponent can go."""
    seed: Seed = 0
    """Seed of the run: its initial states, its sampling and its adapter's first weights follow from it."""
    updates: Count = 100
    """Number of updates."""
    groups: Annotated[int, Range(1, 10_000)] = 8
    """Groups (initial states) per update; advantages stay per group."""
    group_size: Annotated[int, Range(2, 10_000)] = 32
    """Episodes per group [G]."""
    selected_per_group: Annotated[int, Range(1, 10_000)] = 8
    """Episodes of each group that the update learns from [G']."""
    sampler: str = "absolute-advantage"
    """How they are selected."""
    credit: str = "whole-episode"
    """How a return becomes an advantage of each step."""
    advantage_scale: str = "std"
    """What a group's centred returns are divided by: their standard deviation, or nothing."""
    loss_normalisation: str = "token-mean"
    """What counts the same in the loss: every generated token, every step, or every episode."""
    minibatches: Count = 1
    """Optimiser steps per update, to which the selected episodes are dealt out. With 1 the ratio is 1, nearly in bfloat16."""
    format_penalty: Factor = 1.0
    """Taken from the return for each unparsed reply [-Φ]; only while training."""
    epsilon_low: Factor = 0.2
    """Clips the ratio from below [ε_low]; without effect where the ratio is 1: `minibatches` 1, no vLLM."""
    epsilon_up: Factor = 0.2
    """Clips the ratio from above [ε_up]; without effect where the ratio is 1."""
    beta: Factor = 0.01
    """Weight of the KL penalty towards the base [β]; 0 saves the reference pass."""
    learning_rate: Annotated[float, Range(0, 1e30, open=True)] = 1e-5
    """Learning rate of AdamW, which warm-up and decay multiply."""
    learning_rate_end: Annotated[float, Range(0, 1)] = 1.0
    """Share of the learning rate that is left at the last update; the decay is linear, from the first update on."""
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
    """Share of LoRA's inputs that are dropped while learning; acting drops none, so the ratio is then not 1."""
    rslora: bool = False
    """Scale by alpha / √rank instead, which keeps large ranks stable (rank-stabilised LoRA)."""
    temperature: Annotated[float, Range(0.01, 1000)] = 1.0
    """Sampling temperature while training."""
    eval_temperature: Temperature = 1.0
    """Sampling temperature in evaluation."""
    max_new_tokens: ReplyLength = 64
    """Limit of a reply, in tokens."""
    eval_every: Updates = 20
    """Updates between evaluations on the validation episodes; 0 switches them off."""
    eval_episodes: Episodes = 50
    """Number of validation episodes, the same each time."""
    test_episodes: Episodes = 200
    """Number of test episodes of the final table; 0 leaves it out."""
    keep: Literal["last", "best"] = "last"
    """Which weights adapter/ and the final table have: the last, or the best on the validation episodes, where there are any."""
    token_budget: Annotated[int, Range(1, 1_000_000_000)] = 2048
    """Most tokens in one forward and backward pass of training; bounds memory, without effect on the gradient beyond rounding."""
    max_rows: Annotated[int, Range(1, 1_000_000_000)] = 512
    """Most samples that advance together while acting; bounds memory, without effect on results beyond rounding."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the base weights; the adapter is trained in float32 in any case. Not float16: gradients underflow."""
    load_in_4bit: bool = False
    """Quantise the linear layers of the base to 4 bits (NF4) with bitsandbytes: QLoRA."""
    device: Device = "auto"
    """Where the model computes; `auto` is the GPU, or the CPU without one and for models too small to gain from one."""
    engine: EngineName = "auto"
    """How the model computes: `fast` shares prefixes, `plain` uses its own forward; `auto` is fast where that is exact."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
    chat_template: str = ""
    """File with a Jinja chat template, stored with the adapter; if empty, that of init_adapter, else the base's."""
    chat_template_kwargs: dict[str, Scalar] = field(default_factory=dict)
    """Variables of the chat template as JSON, such as {"enable_thinking": false}; stored with the adapter."""
    prompt_format: str = THINK_ACTION.name
    """How the model is asked and its replies are read: a built-in prompt format, or module:object."""
    report_to: Literal["none", "tensorboard", "trackio", "wandb", "all"] = "none"
    """Where metrics go besides metrics.jsonl."""
    save_rollouts: bool = False
    """Keep every training episode in the output folder, to be pushed as a data set."""
    threads: Annotated[int, Range(0, 1024)] = 0
    """CPU threads of torch; 0 is one for a small model and every core for others, and in a resumed run what it began with."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name, kind in get_type_hints(TrainConfig).items():
            if type(value := getattr(self, name)) is int and float in (kind, *get_args(kind)):
                object.__setattr__(self, name, float(value))  # 1 is 1.0, as TOML reads it: one run, one fingerprint
        parse_games(self.game)
        check_switches(self.chat_template_kwargs, "in chat_template_kwargs")
        for name, built_in in CHOICES.items():
            if not is_import(getattr(self, name)):
                resolve(name.replace("_", "-"), getattr(self, name), built_in, may_import=True)
        if self.eval_every and self.eval_episodes < 1:
            raise UserError(f"eval_episodes = {self.eval_episodes}: expected at least 1, or --eval-every 0")
        self._check_teacher()
        if (selected := self.selected_per_group) > self.group_size:
            raise UserError(
                f"selected_per_group = {selected} of group_size = {self.group_size}: expected G' <= G; lower --selected-per-group"
            )

    def _check_teacher(self) -> None:
        if (self.teacher == "none") != (self.taught == 0):
            raise UserError(
                f"teacher = {self.teacher!r} with taught = {self.taught}: expected both or neither, as in --teacher auto "
                "--taught 20"
            )
        player = self.teaching_player
        if unknown_to := [game for game in parse_games(self.game) if self.taught and not can_play(player, make_game(game))]:
            able = [name for name in KNOWS if can_play(name, make_game(unknown_to[0]))]
            raise UserError(
                f"teacher = {self.teacher!r} does not know {unknown_to[0]}: expected {' or '.join(able) or 'a game of ours'}, or "
                "--teacher none --taught 0"
            )
        thinks = self.taught and self.prompt_format == THINK_ACTION.name and _are_thought_of(self.game)
        if self.teacher_thoughts and not thinks:
            raise UserError(
                f"teacher_thoughts with teacher {self.teacher!r}, game {self.game!r}, prompt_format {self.prompt_format!r}: "
                f"expected a teacher, lakes or Snakes without variants, and {THINK_ACTION.name!r}"
            )
        if self.taught > self.updates:
            raise UserError(f"taught = {self.taught} of updates = {self.updates}: expected at most all; raise --updates")
        if self.taught and self.save_rollouts:
            raise UserError(
                "save_rollouts with a teacher, whose episodes are not the policy's: expected one of the two; teach first, then "
                "train from its adapter with --init-adapter and --save-rollouts"
            )

    @property
    def keeps_best(self) -> bool:
        """Whether the run ends with the weights that were best on the validation episodes."""
        return self.keep == "best" and self.eval_every > 0

    @property
    def teaching_player(self) -> str:
        """The scripted player that teaches."""
        return (best_teacher(self.game) or "optimal") if self.teacher == "auto" else self.teacher

    def episodes(self, updates: int) -> int:
        """How many episodes the first `updates` updates play; one that is taught plays one per group."""
        taught = min(updates, self.taught)
        return self.groups * (taught + (updates - taught) * self.group_size)

    def choice(self, name: str) -> Any:
        """The variant that a field of `CHOICES` names; `module:object` is imported here, and only here."""
        return resolve(name.replace("_", "-"), getattr(self, name), CHOICES[name], may_import=True)


def best_teacher(games: str) -> str:
    """The scripted player that teaches games best: `optimal`, or else `greedy`; empty if neither knows all of them."""
    made = [make_game(name) for name in parse_games(games)]
    return next((player for player in ("optimal", "greedy") if all(can_play(player, game) for game in made)), "")


def _are_thought_of(games: str) -> bool:
    """Whether all games are such as `pocket` has thoughts for."""
    return all(has_scene(make_game(name)) and ":" not in name for name in parse_games(games))


PRESETS: dict[str, dict[str, Any]] = {**QUICKSTART_PRESETS, **{name: preset_values(name) for name in PAPER_PRESETS}}


def preset(name: str) -> TrainConfig:
    """The configuration of a preset.

    >>> preset("paper-snake").group_size
    100
    """
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return TrainConfig(**PRESETS[name])


def load_config(path: Path, typed: Mapping[str, Any] = MappingProxyType({})) -> TrainConfig:
    """Reads a configuration to train with; missing fields have their defaults.

    Args:
        path: a TOML file, which may have come from anywhere.
        typed: field → value that was typed on this machine. It takes the place of a `module:object` of the file.

    Raises:
        UserError: it cannot be read, has an unknown or ill-typed field, or would import code that nobody has typed.
    """
    values = read_values(path)
    for name in CHOICES:
        if is_import(str(values.get(name, ""))):
            if name not in typed:
                flag = f"--{name.replace('_', '-')} {values[name]}"
                raise UserError(f"{name} = {values[name]!r} in {path} would import code: expected {flag} typed as well")
            values[name] = typed[name]
    return from_values(values, str(path))


def stored_config(path: Path) -> TrainConfig:
    """The configuration of a stored run, to be read and shown. Nothing is imported; it may name code that is not there."""
    return from_values(read_values(path), str(path))


def read_values(path: Path) -> dict[str, Any]:
    """The fields of a TOML file as they stand there."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the configuration {str(path)!r}: {error.strerror}; expected a TOML file") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or thousands of digits or brackets
        raise UserError(f"{str(path)!r} is not valid TOML: {error}") from error


def from_values(values: dict[str, Any], source: str = "") -> TrainConfig:
    """A configuration from plain values, each checked; messages name their source, such as a file."""
    names, hints = [field.name for field in fields(TrainConfig)], get_type_hints(TrainConfig, include_extras=True)
    for name, value in values.items():
        if name not in names:
            raise unknown(f"field in {source}", name, names)
        check(name, value, hints[name], source and f" in {source}")
    return TrainConfig(**values)


def to_toml(config: TrainConfig) -> str:
    """The configuration as TOML that `load_config` reads back unchanged."""
    values = dataclasses.asdict(config)
    return tomli_w.dumps({name: value for name, value in values.items() if value != {}})
