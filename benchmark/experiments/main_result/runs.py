"""The units of the main result: runs of a preset, other ways to train, and players that are not trained here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from filelock import FileLock

from benchmark.experiments.experiment import HERE, Settings, Values, stored
from benchmark.experiments.training import adapter_of, configured, test_episodes
from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.games import episode_seed, make_game, stream
from msgrpo_hub.games.game import Solvable, is_solvable
from msgrpo_hub.players import can_play, make_player
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage.files import read_json
from msgrpo_hub.training.config import TrainConfig, stored_config
from msgrpo_hub.training.trainer import Trainer

TRAINING, COOLER = 1.0, 0.5
"""Sampling temperatures: of training, and of the evaluation in the authors' later experiments."""
CEILING = "best "
"""The start of the names of players that play optimally without some moves."""
AHEAD = ("Down", "Right")
"""The moves towards the goal in the lower right corner."""

Moves = Callable[[Any], Sequence[str]]
"""State → allowed moves."""


def run(settings: Settings, scratch: Path) -> Values:
    """Trains or makes a player and plays the test episodes.

    Returns:
        `player`; `games`: game → rewards; for a model also `cooler`: the same at a lower temperature; for a trained player the
        number of `training_episodes` or `environment_steps`.
    """
    episodes, seed = settings["episodes"], settings.get("seed", 0)
    if "teacher" in settings:  # the preset's adapter, after SFT on a teacher's moves
        config, trainer = taught(settings)
        return {
            "player": f"taught by {settings['teacher']}",
            "games": {config.game: scores(test_episodes(trainer, TRAINING))},
            "cooler": {config.game: scores(test_episodes(trainer, COOLER))},
            "training_episodes": config.episodes(config.updates),
        }
    if "dqn" in settings:  # the best checkpoint on validation episodes
        from benchmark.dqn.train import train_dqn  # stable-baselines3 is an extra

        game, steps = settings["dqn"], settings["steps"]
        folder = scratch / f"dqn-{game}-{steps}-seed{seed}"
        if not (folder / "trained").exists():
            train_dqn(game, folder, steps, seed)
            (folder / "trained").touch()
        games = {game: played(f"dqn:{folder}", game, episodes)}
        return {"player": f"DQN, {steps:,} steps", "games": games, "environment_steps": steps}
    if "trl" in settings:  # TRL's GRPO on the same base, for the seconds of our run with the same seed
        from benchmark.experiments.main_result.with_trl import grpo  # an extra

        config = configured({**settings["stages"][0], "seed": seed})
        folder = scratch / f"trl-{settings['trl']}-seed{seed}-steps"
        learned = grpo(config, our_seconds(settings, scratch), folder)
        return {"player": "TRL GRPO, equal seconds", **sampled(str(folder), [config.game], episodes), **learned}
    if "player" in settings:
        name, game = settings["player"], settings["game"]
        if name == "base":
            return {"player": name, **sampled("pocket", [game], episodes)}
        plays = ceiling if name.startswith(CEILING) else played
        return {"player": name, "games": {game: plays(name, game, episodes)}}
    adapter = trained(settings["stages"], seed, scratch)
    config = stored_config(adapter.parent / "config.toml")
    return {
        "player": f"trained: {settings['run']}",
        **sampled(str(adapter), [config.game, *settings.get("also", [])], episodes),
        "seconds": seconds_of(adapter),
        "training_episodes": config.episodes(config.updates),
    }


def trained(stages: Sequence[Settings], seed: int, scratch: Path) -> Path:
    """The adapter of the last of some runs; each run starts from the adapter of the previous one."""
    adapter: Path | None = None
    for stage in stages:
        if "teacher" in stage and "taught" not in stage:  # SFT without a run
            adapter = scratch / f"taught-{stage['game']}-{stage['updates']}-seed{seed}"
            with FileLock(f"{adapter}.lock"):
                if not adapter.exists():
                    new = adapter.with_suffix(".new")
                    taught({**stage, "seed": seed, "episodes": 0})[1].model.save_pretrained(str(new))
                    new.rename(adapter)
        else:
            config = configured({**stage, "seed": seed})
            adapter = adapter_of(replace(config, init_adapter=str(adapter)) if adapter else config, scratch)
    assert adapter
    return adapter


def taught(settings: Settings) -> tuple[TrainConfig, Trainer]:
    """Trains a preset's adapter on a teacher's moves, with new episodes in every update.

    Args:
        settings: `preset`, `seed`, `updates`, `teacher`, the number of test `episodes`, and `game` if it is not the preset's.
    """
    fields = {name: settings[name] for name in ("preset", "seed", "updates", "teacher", "game") if name in settings}
    config = configured({**fields, "taught": settings["updates"], "test_episodes": settings["episodes"]})
    trainer = Trainer(config, Accelerator(cpu=True))
    for update in range(1, config.updates + 1):
        trainer.update(update)
    return config, trainer


def unit_of(name: str, seed: int) -> str:
    """The unit of a run with a seed."""
    return f"{name.replace(' ', '-')}-seed{seed}"


def our_seconds(settings: Settings, scratch: Path) -> float:
    """Processor seconds of our run with the same stages and seed: of its row, evaluation included, or of a new run."""
    name, seed = settings["trl"], settings["seed"]
    row = stored(HERE / "main_result").get(unit_of(name, seed))
    if row and row["settings"]["stages"] == settings["stages"]:
        return float(row["cpu_seconds"])
    return seconds_of(trained(settings["stages"], seed, scratch))


def seconds_of(adapter: Path) -> float:
    """Seconds of all updates of a run, by its adapter."""
    summary = read_json(adapter.parent / "summary.json", "the summary of a run")
    return float(summary["seconds_acting"] + summary["seconds_training"])


def sampled(name: str, games: Sequence[str], episodes: int) -> Values:
    """A model's scores at the temperature of training, as `games`, and at a lower one, as `cooler`."""
    temperatures = {"games": TRAINING, "cooler": COOLER}
    return {key: {game: played(name, game, episodes, value) for game in games} for key, value in temperatures.items()}


def played(name: str, game_id: str, episodes: int, temperature: float = TRAINING) -> Values:
    """A player's scores on the test episodes; no rewards if it cannot play the game."""
    game = make_game(game_id)
    if not can_play(name, game):
        return {"rewards": []}
    player = make_player(name, PlayerSettings(temperature=temperature))
    return scores(play_episodes(game, player, [(episode_seed(game_id, "test", index), 0) for index in range(episodes)]))


def scores(episodes: Sequence[Episode]) -> Values:
    """The rewards of episodes, and in a solved game their luck-adjusted rewards V*(s₀) − Σ regrets."""
    adjusted = [judged(episode)[1].luck_adjusted for episode in episodes]
    return {
        "rewards": [episode.reward for episode in episodes],
        "luck_adjusted": [round(score, 6) for score in adjusted if score is not None],
    }


# ---- exact optima without some moves. On slippery ice the best move often goes into a wall: the player slips along the wall,
# never ahead. The base's data had no such moves; these optima show its limit without exploring them.


def moves_left(game: Solvable, player: str) -> Moves:
    """The allowed moves of a player in `config.toml`."""
    return {
        "best without moves into walls": game.legal_actions,
        "best with Down and Right alone": lambda _: AHEAD,
        "best with Down and Right alone and without moves into walls": lambda state: (
            tuple(move for move in game.legal_actions(state) if move in AHEAD) or game.legal_actions(state)
        ),
    }[player]


def best_value(game: Solvable, start: Any, moves: Moves) -> float:
    """The largest expected return from a state with only these moves, by backward induction."""

    @cache
    def value(state: Any) -> float:
        return max(
            sum(
                chance * (after.reward + (0.0 if after.terminated or after.truncated else value(after.state)))
                for chance, after in game.outcomes(state, move)
            )
            for move in moves(state)
        )

    return value(start)


def ceiling(player: str, game_id: str, episodes: int) -> Values:
    """The exact values of the starts of the test episodes, as rewards."""
    game = make_game(game_id)
    assert is_solvable(game)
    moves = moves_left(game, player)
    starts = [game.initial_state(stream(episode_seed(game.id, "test", index), "initial_state")) for index in range(episodes)]
    values = [round(best_value(game, start, moves), 6) for start in starts]
    return {"rewards": values, "luck_adjusted": values}
