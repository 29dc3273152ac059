"""The presets: five of ours, and `paper-*`, whose every value has an origin: the paper, its authors' later work, or us.

The paper's trainer is not public. The values come from its abstract, its captions and a digest of its text, and from the
authors' later publications: their Snake engine and the settings of further experiments. This file is the only place for
these labels; the help of `msgrpo train`, the cards, the README and the guide are generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from msgrpo_hub.games import Game

# ---- ours: tuned on validation boards (benchmark/experiments)

_QUICK: dict[str, Any] = {
    "beta": 0.04,
    "learning_rate": 3e-3,
    "learning_rate_end": 0.1,
    "warmup": 5,
    "max_new_tokens": 32,
}

QUICKSTART_PRESETS: dict[str, dict[str, Any]] = {
    "quickstart": {**_QUICK, "updates": 100, "keep": "best"},  # with other rounding a run may collapse late
    "quickstart-slippery": {
        **_QUICK,
        "game": "FrozenLake-Slippery-v1",
        "teacher": "optimal",  # chance hides the value of a move: first a teacher, then large groups
        "taught": 300,
        "updates": 360,
        "temperature": 1.25,  # as in the authors' later experiments
        "groups": 16,
        "group_size": 512,
        "selected_per_group": 512,
        "credit": "anchor-state",
        "beta": 0.0,
        "learning_rate": 1.5e-3,
        "learning_rate_end": 0.3,
    },
    "quickstart-snake": {
        **_QUICK,
        "game": "Snake-Solo-v1",
        "updates": 100,
        "group_size": 16,
        "selected_per_group": 4,
        "sampler": "max-variance",
        "eval_every": 10,
    },
    "quickstart-snake-standard": {
        **_QUICK,
        "game": "Snake-Standard-v1",
        "teacher": "greedy",
        "teacher_thoughts": True,  # without them it hardly learns to avoid the other snake's head
        "taught": 150,
        "updates": 170,
        "temperature": 1.25,
        "groups": 16,
        "group_size": 16,
        "selected_per_group": 16,
        "credit": "reward-to-go",
        "beta": 0.0,
        "learning_rate_end": 0.3,
    },
    "small-model": {
        "teacher": "auto",
        "teacher_thoughts": True,
        "taught": 40,
        "updates": 60,
        "group_size": 16,
        "learning_rate": 5e-4,
        "learning_rate_end": 0.3,
        "beta": 0.0,
        "eval_every": 10,
        "eval_episodes": 30,
        "test_episodes": 50,
        "keep": "best",
    },
}

# ---- paper-*

Origin = Literal["paper", "authors' later experiments", "ours"]
"""Who decided a value."""

ORIGINS: tuple[Origin, ...] = get_args(Origin)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value of a preset."""

    value: Any
    """The value of the field in `TrainConfig`."""
    note: str = ""
    """A remark for readers; may be empty."""
    origin: Origin = "ours"
    """Who decided it."""


_paper, _later = partial(Setting, origin="paper"), partial(Setting, origin="authors' later experiments")

PAPER_PRESETS = {"paper-frozen-lake": "FrozenLake-NotSlippery-v1", "paper-snake": "Snake-Standard-v1"}
"""Preset → its game."""

SCENARIOS = (*PAPER_PRESETS.values(), "FrozenLake-Slippery-v1", "Snake-PoisonApple-v1")
"""The games of the paper, by their names; sizes, rewards and horizons follow the published engine."""

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
    "advantage_scale": _paper("std", "population standard deviation (ours)"),
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
"""Field → its value in these presets; `PAPER_PRESETS` has the game."""

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
"""Fields for the machine, the model's files or a tracker, all ours."""


def preset_settings(preset: str) -> dict[str, Setting]:
    """Field → its labelled value in a preset of the paper."""
    return {"game": _paper(PAPER_PRESETS[preset]), **SETTINGS, **MACHINE}


PRESETS: dict[str, dict[str, Any]] = QUICKSTART_PRESETS | {
    name: {field: setting.value for field, setting in preset_settings(name).items()} for name in PAPER_PRESETS
}
"""Preset → the fields that it sets."""


def of_game(game: Game) -> dict[str, Setting]:
    """The settings of a run that follow from its game."""
    engine: Any = _later if game.id in SCENARIOS else Setting
    return {
        "horizon": engine(game.horizon),
        "board": engine(f"{game.rows}×{game.columns}"),
        "words of the prompt": Setting("", "instructions and rules"),
    }


def origin_of(field: str, value: object) -> Origin:
    """The origin of a value of any run; a value that differs from the paper's presets is ours.

    >>> origin_of("group_size", 100), origin_of("group_size", 32), origin_of("temperature", 1.25)
    ('paper', 'ours', "authors' later experiments")
    """
    if field == "game":
        return "paper" if value in SCENARIOS else "ours"
    if field == "model":
        value = str(value).partition("@")[0]  # a published configuration names its commit
    setting = {**SETTINGS, **MACHINE}[field]
    return setting.origin if value == setting.value else "ours"


def remark(field: str, default: object) -> str:
    """The remark about these presets in the help of a flag; empty for values that are ours and equal the default."""
    setting = {**SETTINGS, **MACHINE}.get(field)
    if setting is None or (setting.origin == "ours" and setting.value == default):
        return ""
    return f"In paper-*: {setting.value} ({setting.origin})."
