"""Floor 0, games: the rules of Frozen Lake and Snake, their ids and their seeds. Importing it registers them with gymnasium."""

from msgrpo_hub.games.environment import register_games
from msgrpo_hub.games.game import Game, Transition, draw
from msgrpo_hub.games.registry import GAMES, all_games, make_game
from msgrpo_hub.games.seeds import Split, episode_seed, stream
from msgrpo_hub.games.variants import VARIANTS, Retold, played, told

__all__ = [
    "GAMES",
    "VARIANTS",
    "Game",
    "Retold",
    "Split",
    "Transition",
    "all_games",
    "draw",
    "episode_seed",
    "make_game",
    "played",
    "stream",
    "told",
]

register_games()
