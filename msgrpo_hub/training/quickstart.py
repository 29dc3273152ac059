"""The presets that are ours: those that train the built-in base in minutes, and one that starts a real model of 0.1 to 2 B.

Their values were found on validation boards; see benchmark/experiments.
"""

from __future__ import annotations

from typing import Any

_QUICK: dict[str, Any] = {
    "beta": 0.04,
    "learning_rate": 3e-3,
    "learning_rate_end": 0.1,
    "warmup": 5,
    "max_new_tokens": 32,
}

QUICKSTART_PRESETS: dict[str, dict[str, Any]] = {
    "quickstart": {**_QUICK, "updates": 100, "keep": "best"},  # a run that rounds otherwise may collapse late
    "quickstart-slippery": {
        **_QUICK,
        "game": "FrozenLake-Slippery-v1",
        "teacher": "optimal",  # chance hides what a move is worth: first a teacher, then large groups
        "taught": 300,
        "updates": 360,
        "temperature": 1.25,  # as in the later experiments of the authors
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
        "teacher_thoughts": True,  # without them it hardly learns to keep away from the other snake's head
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
