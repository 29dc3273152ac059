"""A policy that replies at length: the built-in base, taught the moves of greedy search with thoughts that name all it sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from tqdm import tqdm

from msgrpo_hub.games import Game
from msgrpo_hub.games.board import cells_text
from msgrpo_hub.games.snake import is_snake
from msgrpo_hub.pocket.pretraining_tasks import direction_to
from msgrpo_hub.storage.files import new_folder
from msgrpo_hub.training.acting import EngineActor
from msgrpo_hub.training.config import preset
from msgrpo_hub.training.teacher import careful_thought, teacher_of
from msgrpo_hub.training.trainer import Trainer

TOKENS = 96
"""More than any of its replies has."""
UPDATES = 150


def long_thought(game: Game, state: Any) -> str:
    """`careful_thought`, in which every apple and the opponent's head come before the nearest apple.

    >>> from msgrpo_hub.games import make_game
    >>> from msgrpo_hub.games.snake import SnakeState
    >>> long_thought(make_game("Snake-Solo-v1"), SnakeState(((4, 4),), (), (((0, 4), (4, 7)),)))
    'Left free Down free Right free Up free apple (0, 4) Up 4 apple (4, 7) Right 3 nearest apple (4, 7) Right 3'
    """
    assert is_snake(game)
    view, _, found = careful_thought(game, state).partition(" nearest ")
    named = [(item.name, cell) for item, cells in zip(game.items, state.items, strict=True) for cell in cells]
    named += [("opponent", cell) for cell in state.opponent[:1]]
    every = [f"{name} {cells_text([cell])} {direction_to(state.snake[0], cell)}" for name, cell in named]
    return " ".join([view, *every, f"nearest {found}"] if found else [view, *every])


def long_player(folder: Path, updates: int = UPDATES) -> str:
    """The folder of its adapter. It is taught first unless it is there, which takes ten minutes on one core."""
    if not folder.exists():
        snake = preset("quickstart-snake-standard")
        config = replace(snake, updates=updates, taught=updates, max_new_tokens=TOKENS)
        trainer = Trainer(config, Accelerator(cpu=True))
        trainer.teacher = EngineActor(teacher_of(config.teacher, trainer.agent, long_thought))
        for index in tqdm(range(1, updates + 1), desc="teaching", unit="update"):
            trainer.update(index)
        with new_folder(folder) as beside:
            trainer.model.save_pretrained(str(beside))
    return str(folder)
