"""The presets `paper-*`: every value, and who decided it: the paper, its authors' later experiments, or we.

The paper's trainer is not public. We had its abstract, its captions, a digest of its text, and what the authors published later:
their Snake engine and the settings of further experiments. This file is the only place for the labels; the help of
`msgrpo train`, the cards, the README and the guide are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from msgrpo_hub.games import Game

Origin = Literal["paper", "authors' later experiments", "ours"]
"""Who decided a value."""

ORIGINS: tuple[Origin, ...] = get_args(Origin)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value of a preset."""

    value: Any
    """As the configuration has it."""
    note: str = ""
    """What a reader must know besides; empty if nothing."""
    origin: Origin = "ours"
    """Who decided it."""


_paper, _later = partial(Setting, origin="paper"), partial(Setting, origin="authors' later experiments")

PRESETS = {"paper-frozen-lake": "FrozenLake-NotSlippery-v1", "paper-snake": "Snake-Standard-v1"}
"""Preset → its game."""

SCENARIOS = (*PRESETS.values(), "FrozenLake-Slippery-v1", "Snake-PoisonApple-v1")
"""The games of the paper, as far as their names tell; their sizes, rewards and horizons are those of the published engine."""

SETTINGS: dict[str, Setting] = {
    "model": _later("Qwen/Qwen2.5-3B-Instruct", "the paper: 3 billion parameters"),
    "init_adapter": Setting(""),
    "teacher": Setting("none"),
    "taught": Setting(0),
    "teacher_thoughts": Setting(False),
    "seed": Setting(0, "the paper: 8 runs"),
    "updates": _paper(700),
    "groups": _paper(1),
    "group_size": _paper(100),
    "selected_per_group": _paper(25),
    "sampler": _paper("absolute-advantage", "without replacement; its temperature τ = 1 is ours"),
    "credit": _paper("whole-episode"),
    "advantage_scale": _paper("std", "that it is the population standard deviation is ours"),
    "loss_normalisation": Setting("token-mean"),
    "minibatches": _later(1, "so the ratio is 1 (in bfloat16 nearly) and the clip never acts"),
    "format_penalty": _later(1.0, "the paper: a penalty for unparsed replies while training"),
    "epsilon_low": _later(0.2, "without effect while minibatches = 1"),
    "epsilon_up": _later(0.2, "without effect while minibatches = 1"),
    "beta": Setting(0.01),
    "learning_rate": Setting(1e-5, "the authors' later full fine-tuning: 1e-6"),
    "learning_rate_end": Setting(1.0),
    "warmup": Setting(0),
    "gradient_clip": _later(1.0),
    "lora_targets": _paper("all-linear"),
    "lora_rank": Setting(16),
    "lora_alpha": Setting(32),
    "lora_dropout": Setting(0.0),
    "rslora": Setting(False),
    "temperature": _later(1.25),
    "eval_temperature": _later(0.5),
    "max_new_tokens": _later(256),
    "eval_every": Setting(50),
    "eval_episodes": _paper(50, "the same episodes each time"),
    "test_episodes": Setting(200),
    "keep": Setting("last"),
    "prompt_format": _later("think-action", "sections, tags, parser; that only the current state is shown is the paper's"),
    "dtype": Setting("bfloat16"),
    "load_in_4bit": Setting(False),
}
"""Field → its value in these presets; the game is in `PRESETS`."""

MACHINE: dict[str, Setting] = {
    "token_budget": Setting(8192),
    "max_rows": Setting(512),
    "device": Setting("auto"),
    "engine": Setting("auto"),
    "gradient_checkpointing": Setting(True),
    "chat_template": Setting(""),
    "chat_template_kwargs": Setting({}),
    "report_to": Setting("none"),
    "save_rollouts": Setting(False),
    "threads": Setting(0),
}
"""Fields that fit a run to a machine, a model's files or a tracker, all ours."""


def preset_settings(preset: str) -> dict[str, Setting]:
    """Field → its value in a preset, labelled."""
    return {"game": _paper(PRESETS[preset]), **SETTINGS, **MACHINE}


def preset_values(preset: str) -> dict[str, Any]:
    """Field → its value in a preset.

    >>> preset_values("paper-snake")["temperature"]
    1.25
    """
    return {name: setting.value for name, setting in preset_settings(preset).items()}


def of_game(game: Game) -> dict[str, Setting]:
    """What a game decides besides the configuration."""
    engine: Any = _later if game.id in SCENARIOS else Setting
    return {
        "horizon": engine(game.horizon),
        "board": engine(f"{game.rows}×{game.columns}"),
        "words of the prompt": Setting("", "instructions and rules"),
    }


def origin_of(field: str, value: object) -> Origin:
    """Who decided a value of any run: a value that the paper's presets do not have is ours.

    >>> origin_of("group_size", 100), origin_of("group_size", 32), origin_of("temperature", 1.25)
    ('paper', 'ours', "authors' later experiments")
    """
    if field == "game":
        return "paper" if value in SCENARIOS else "ours"
    if field == "model":
        value = str(value).partition("@")[0]  # a published configuration has its commit
    setting = {**SETTINGS, **MACHINE}[field]
    return setting.origin if value == setting.value else "ours"


def remark(field: str, default: object) -> str:
    """What the help of a flag says of these presets; empty if they have the default, and it is ours."""
    if field == "game":
        return ""
    setting = {**SETTINGS, **MACHINE}[field]
    if setting.origin == "ours" and setting.value == default:
        return ""
    return f"In paper-*: {setting.value} ({setting.origin})."
