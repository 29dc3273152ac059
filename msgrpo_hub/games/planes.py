"""A board as one-hot planes, for networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from msgrpo_hub.games.game import Game


def planes(game: Game, state: Any) -> npt.NDArray[np.float32]:
    """The grid as one-hot planes (symbols, rows, columns): plane k is 1 where the grid has the k-th of `game.symbols`."""
    rows = np.array([list(row) for row in game.grid(state)])
    return np.stack([rows == symbol for symbol in game.symbols]).astype(np.float32)
