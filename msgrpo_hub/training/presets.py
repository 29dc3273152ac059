"""The presets: five of ours, and `paper-*`, where each value has an origin: the paper, its authors' later work, or us.

The paper's trainer is not public: its values come from the abstract, the captions and the text, the others from the authors'
later publications. The help of `msgrpo train`, the cards, the README and the guide take the labels from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from msgrpo_hub.games import Game

# ---- ours: tuned on validation boards (benchmark/experiments)

_QUICK: dict[str, Any] = {"beta": 0.04, "learning_rate": 3e-3, "learning_rate_end": 0.1, "warmup": 5}
_QUICK |= {"max_new_tokens": 32, "test_episodes": 200}

QUICKSTART_PRESETS: dict[str, dict[str, Any]] = {
    "quickstart": {**_QUICK, "updates": 100, "keep": "best"},  # on some machines, rounding makes it collapse late
    "quickstart-slippery": {
        **_QUICK,
        "game": "FrozenLake-Slippery-v1",
        "teacher": "optimal",  # slipping hides the value of a move, so start with a teacher and continue with large groups
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
        "teacher_thoughts": True,  # without them the model hardly learns to avoid the opponent's head
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
        "sft_learning_rate": 5e-4,
        "learning_rate": 2e-5,  # rewards at 2e-4 ruin in one step what SFT taught
        "learning_rate_end": 0.3,
        "max_new_tokens": 80,
        "beta": 0.0,
        "eval_every": 10,
        "eval_episodes": 30,
        "keep": "best",
    },
}

# ---- paper-*

Origin = Literal["paper", "authors' later experiments", "ours"]
"""Who chose a value."""

ORIGINS: tuple[Origin, ...] = get_args(Origin)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value of a preset."""

    value: Any
    note: str = ""
    """A remark for readers."""
    origin: Origin = "ours"


_paper, _later = partial(Setting, origin="paper"), partial(Setting, origin="authors' later experiments")

PAPER_PRESETS = {"paper-frozen-lake": "FrozenLake-NotSlippery-v1", "paper-snake": "Snake-Standard-v1"}
"""Preset → its game."""

SCENARIOS = (*PAPER_PRESETS.values(), "FrozenLake-Slippery-v1", "Snake-PoisonApple-v1")
"""The paper's games. Its text names them; their sizes, rewards and horizons follow the published engine."""


def _ours(**values: Any) -> dict[str, Setting]:
    """Field → a value of ours without a note."""
    return {name: Setting(value) for name, value in values.items()}


SETTINGS: dict[str, Setting] = {
    "model": _later("Qwen/Qwen2.5-3B-Instruct", "the paper: 3 billion parameters"),
    **_ours(init_adapter="", teacher="none", taught=0, teacher_thoughts=False, sft="", sft_epochs=1, sft_learning_rate=0.0),
    "seed": Setting(0, "the paper: 8 runs"),
    "updates": _paper(700),
    "groups": _paper(1),
    "group_size": _paper(100),
    "selected_per_group": _paper(25),
    "sampler": _paper("absolute-advantage", "without replacement; its temperature τ = 1 is ours"),
    "credit": _paper("whole-episode"),
    "advantage_scale": _paper("std", "population standard deviation (ours)"),
    **_ours(loss_normalisation="token-mean"),
    "minibatches": _later(1, "so the ratio is 1 (in bfloat16 nearly) and the clip never acts"),
    **_ours(staleness=0),
    "format_penalty": _later(1.0, "the paper: a penalty for unparsed replies while training"),
    "epsilon_low": _later(0.2, "without effect while minibatches = 1"),
    "epsilon_up": _later(0.2, "without effect while minibatches = 1"),
    **_ours(beta=0.01),
    "learning_rate": Setting(1e-5, "the authors' later full fine-tuning: 1e-6"),
    **_ours(learning_rate_end=1.0, warmup=0),
    "gradient_clip": _later(1.0),
    "lora_targets": _paper("all-linear"),
    **_ours(lora_rank=16, lora_alpha=32, lora_dropout=0.0, rslora=False),
    "temperature": _later(1.25),
    "eval_temperature": _later(0.5),
    "max_new_tokens": _later(256),
    **_ours(eval_every=50),
    "eval_episodes": _paper(50, "the same episodes each time"),
    **_ours(test_episodes=200, keep="last"),
    "prompt_format": _later("think-action", "sections, tags, parser; that only the current state is shown is the paper's"),
    **_ours(dtype="bfloat16", load_in_4bit=False),
}
"""Field → its value in these presets; `PAPER_PRESETS` has the game."""

MACHINE: dict[str, Setting] = {
    **_ours(token_budget=8192, max_rows=512, device="auto", engine="auto", gradient_checkpointing=True),
    **_ours(chat_template="", chat_template_kwargs={}, report_to="none", save_rollouts=False, show_replies=0, threads=0),
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
    """The settings that follow from the game of a run."""
    engine: Any = _later if game.id in SCENARIOS else Setting
    return {
        "horizon": engine(game.horizon),
        "board": engine(f"{game.rows}×{game.columns}"),
        "words of the prompt": Setting("", "instructions and rules"),
    }


def origin_of(field: str, value: object) -> Origin:
    """The origin of a field's value in any run: as in the paper's presets if the value is the same, otherwise ours.

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
    """The help text of a flag about the paper's presets; empty if the value is ours and equals the default."""
    setting = {**SETTINGS, **MACHINE}.get(field)
    if setting is None or (setting.origin == "ours" and setting.value == default):
        return ""
    return f"In paper-*: {setting.value} ({setting.origin})."
