"""The games as gymnasium environments. Importing this module registers them, so that `gymnasium.make` finds them.

The id can carry the import: `gymnasium.make("msgrpo_hub.games.environment:msgrpo_hub/Snake-Standard-v1")`. After
`import msgrpo_hub.games.environment`, `gymnasium.make("msgrpo_hub/Snake-Standard-v1")` is enough.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from importlib.metadata import entry_points
from itertools import product
from pkgutil import resolve_name
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt

from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.games.game import Game, planes, render_text
from msgrpo_hub.games.registry import FURTHER, GAMES, GROUP, TABLE_GAMES, make_game
from msgrpo_hub.games.seeds import SHARES, Split, Splits
from msgrpo_hub.games.variants import VARIANTS, base_game

Observation = str | npt.NDArray[np.float32]


class TextGameEnv(gymnasium.Env[Observation, np.int64]):
    """One game, observed as the text of a language agent or as one-hot planes for a network.

    The initial state and the dynamics both use the environment's own generator, as usual in gymnasium. Initial states come
    from training boards, unless another split is named. `info` has `legal_actions` (names) and `action_mask` (1 where the
    action is legal, in the order of the action space).

    >>> env = TextGameEnv("FrozenLake-NotSlippery-v1", render_mode="ansi")
    >>> observation, info = env.reset(seed=1)
    >>> info["legal_actions"], env.step(np.int64(2))[1:4]
    (('Down', 'Right'), (0.0, False, False))
    >>> env.render().splitlines()[1]
    '│ . @ . . │'
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012  (gymnasium declares this attribute)

    def __init__(
        self,
        game_id: str,
        observation: Literal["text", "tensor"] = "text",
        render_mode: Literal["ansi", "rgb_array"] | None = None,
        split: Split = "train",
    ) -> None:
        """Sets up the spaces; `tensor` is float32 planes (symbols, rows, columns). Raises `UserError` for an unknown name."""
        self.game: Game = make_game(game_id)
        modes: list[str] = self.metadata["render_modes"]
        for kind, name, known in (
            ("observation", observation, ["text", "tensor"]),
            ("render mode", render_mode or modes[0], modes),
            ("split", split, [*SHARES]),
        ):
            if name not in known:
                raise unknown(kind, name, known)
        self.observation, self.render_mode, self.split = observation, render_mode, split
        self._splits = Splits(base_game(self.game))
        self.state: Any = None
        self._states: list[Any] = []  # of the episode so far
        self.action_space = gymnasium.spaces.Discrete(len(self.game.actions))
        shape = (len(self.game.symbols), self.game.rows, self.game.columns)
        box = gymnasium.spaces.Box(0.0, 1.0, shape, np.float32)
        self.observation_space: gymnasium.Space[Any] = text_space(self.game) if observation == "text" else box

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Samples an initial state."""
        super().reset(seed=seed, options=options)
        self.state = self._splits.initial_state(self.split, self.np_random)
        self._states = [self.state]
        return self._seen()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Plays one turn. Raises `ValueError` before a reset, after the end, and for an action outside the space."""
        if self.state is None:
            raise ValueError(f"{self.game.id}: step before reset; call reset first")
        if not self.action_space.contains(action):
            raise ValueError(f"{self.game.id}: action {action!r} is not in {self.action_space}")
        after = self.game.step(self.state, self.game.actions[int(action)], self.np_random)
        self.state = after.state
        self._states.append(self.state)
        observation, info = self._seen()
        return observation, after.reward, after.terminated, after.truncated, info

    def render(self) -> str | npt.NDArray[np.uint8] | None:
        """The board as text, or as pixels (rows, columns, RGB); None without a render mode. Raises `UserError` before a reset,
        and for pixels without the packages of the extra `video`.
        """
        if self.state is None and self.render_mode:
            raise UserError(f"{self.game.id}: render before reset; call reset first")
        if self.render_mode == "rgb_array":
            draw: Callable[..., npt.NDArray[np.uint8]] = resolve_name("msgrpo_hub.rendering.replay_svg:board_pixels")
            return draw(self.game, self._states)  # resolved here: the rules need no drawing
        return render_text(self.game, self.state) if self.render_mode else None

    def _seen(self) -> tuple[Observation, dict[str, Any]]:
        """The observation and the info of the current state."""
        legal = self.game.legal_actions(self.state)
        mask = np.array([action in legal for action in self.game.actions], dtype=np.int8)
        observation = self.game.observe(self.state) if self.observation == "text" else planes(self.game, self.state)
        return observation, {"legal_actions": legal, "action_mask": mask}


def text_space(game: Game) -> gymnasium.spaces.Text:
    """A space of all text observations of a game; its largest length is an upper bound."""
    labels = sum(len(name) + 24 for name in game.symbols.values())
    # A cell is listed twice if the player is on the goal or in a hole.
    cells = (game.rows * game.columns + 1) * len(f"({game.rows}, {game.columns}) ")
    charset = {*string.ascii_letters, *string.digits, *" (),:\n", *game.symbols}
    return gymnasium.spaces.Text(labels + cells + 2 * game.rows * game.columns, charset=frozenset(charset))


def register_games() -> None:
    """Registers every game; `gymnasium.make` loads those of other packages. gymnasium reads a colon as an import, so the variant
    `Snake-Solo-v1:reflected` is `msgrpo_hub/Snake-Solo-reflected-v1`. No `max_episode_steps`: a game truncates its own episodes.
    """
    named = {f"msgrpo_hub/{game_id}": game_id for game_id in {*GAMES, *FURTHER, *entry_points(group=GROUP).names}}
    for game_id, variant in product((GAMES | FURTHER).keys() - TABLE_GAMES.keys(), VARIANTS):
        name, _, version = game_id.rpartition("-v")
        named[f"msgrpo_hub/{name}-{variant}-v{version}"] = f"{game_id}:{variant}"
    for name, game_id in named.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=f"{__name__}:{TextGameEnv.__name__}", kwargs={"game_id": game_id})


register_games()
