"""The player `dqn:FOLDER`: trained Q-networks, one per game, evaluated with numpy.

`benchmark/dqn/train.py` trains and writes them. A network sees only the grid, and plays argmax_a Q(s, a).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.downloads.names import is_folder
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game
from msgrpo_hub.games.game import planes

Floats = npt.NDArray[np.float32]

YOU = "@"


def centred(game: Game, board: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The planes of a board (K symbols, R rows, C columns) with the player in the centre: the input of a Q-network.

    Returns:
        Zeros and ones ((K − 1) · (2R − 1) · (2C − 1),): all planes except the player's, shifted. Off the board every plane is 0,
        also the plane of free cells, so that walls are visible.
    """
    me, rows, columns = list(game.symbols).index(YOU), game.rows, game.columns
    ((row, column),) = np.argwhere(board[me])
    shifted = np.zeros((len(board) - 1, 2 * rows - 1, 2 * columns - 1), np.uint8)
    top, left = rows - 1 - row, columns - 1 - column
    shifted[:, top : top + rows, left : left + columns] = np.delete(board, me, axis=0)
    return shifted.reshape(-1)


@dataclass(frozen=True)
class QNetwork:
    """A multilayer perceptron with rectified linear units: (inputs,) → (actions,)."""

    layers: tuple[tuple[Floats, Floats], ...]
    """Per layer, the weight (outputs, inputs) and the bias (outputs,)."""
    metadata: Mapping[str, str] = field(default_factory=dict)

    def values(self, inputs: npt.NDArray[Any]) -> Floats:
        """Q(s, ·), from inputs of zeros and ones."""
        (weight, bias), *rest = self.layers
        hidden: Floats = weight[:, np.flatnonzero(inputs)].sum(axis=1) + bias  # the input is sparse
        for weight, bias in rest:
            hidden = weight @ np.maximum(hidden, 0) + bias
        return hidden


def read_network(path: Path) -> QNetwork:
    """The network of a safetensors file: `0.weight`, `0.bias`, `2.weight`, … Raises `UserError` for any other file."""
    try:
        with safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        numbers = sorted({int(name.partition(".")[0]) for name in tensors})
        layers = tuple((tensors[f"{n}.weight"], tensors[f"{n}.bias"]) for n in numbers)
        sound = [weight.ndim == 2 and bias.shape == weight.shape[:1] for weight, bias in layers]
        if not sound or not all(sound) or any(b.shape[1] != a.shape[0] for (a, _), (b, _) in pairwise(layers)):
            raise ValueError(f"shapes {', '.join(str(weight.shape) for weight, _ in layers)}")
        return QNetwork(layers, metadata)
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:  # the last two: types unknown to numpy
        given = f"{str(path)!r} is not a Q-network ({error})"
        raise UserError(f"{given}: expected a file that `python -m benchmark.dqn.train` wrote") from error


@dataclass(frozen=True)
class Networks:
    """Plays each game with its own network."""

    folder: Path
    networks: Mapping[str, QNetwork]

    def choose(self, game: Game, state: Any, rng: np.random.Generator) -> str:  # noqa: ARG002
        """The action of highest Q; the first among equals."""
        game_id = game.id.partition(":")[0]
        if game_id not in self.networks:
            known = ", ".join(self.networks)
            raise UserError(f"no DQN for {game_id} in {str(self.folder)!r}: expected one of {known}, or train it there")
        network, inputs = self.networks[game_id], centred(game, planes(game, state))
        found, expected = (network.layers[0][0].shape[1], len(network.layers[-1][1])), (len(inputs), len(game.actions))
        if found != expected:
            given = f"the DQN for {game_id} in {str(self.folder)!r} has {found[0]} inputs and {found[1]} outputs: "
            raise UserError(f"{given}expected {expected[0]} and {expected[1]}; train it again")
        return game.actions[int(network.values(inputs).argmax())]


def load_dqn(folder: str | Path) -> ScriptedPolicy:
    """The player of a folder with `<game id>.safetensors` for at least one game. Raises `UserError` if there are none."""
    files = sorted(Path(folder).glob("*.safetensors")) if is_folder(folder) else []
    if not files:
        raise UserError(f"no DQN in {str(folder)!r}: expected <game id>.safetensors there, from `python -m benchmark.dqn.train`")
    return ScriptedPolicy(Networks(Path(folder), {path.stem: read_network(path) for path in files}).choose)
