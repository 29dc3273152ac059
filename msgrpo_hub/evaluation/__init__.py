"""Floor 4, evaluation: suites, players, runs, references and statistics. Torch is loaded only for a language model."""

from msgrpo_hub.evaluation.comparing import compare
from msgrpo_hub.evaluation.identity import PlayerSettings
from msgrpo_hub.evaluation.paired import Comparison, compare_paired
from msgrpo_hub.evaluation.players import can_play, make_player
from msgrpo_hub.evaluation.replay import replay_svg, replayed_states
from msgrpo_hub.evaluation.report_replay import episode_data, game_data, shapes, state_data
from msgrpo_hub.evaluation.runner import evaluate, find_results
from msgrpo_hub.evaluation.scores import score_episode, score_steps
from msgrpo_hub.evaluation.statistics import Interval, mean_interval, wilson

__all__ = [
    "Comparison",
    "Interval",
    "PlayerSettings",
    "can_play",
    "compare",
    "compare_paired",
    "episode_data",
    "evaluate",
    "find_results",
    "game_data",
    "make_player",
    "mean_interval",
    "replay_svg",
    "replayed_states",
    "score_episode",
    "score_steps",
    "shapes",
    "state_data",
    "wilson",
]
