"""The mean return of a player's episodes with a 95 % interval, for the `evaluate` library."""

# One import per line, and `import evaluate` whole: `evaluate.load` reads these lines one by one, and takes the first
# module class among this file's names for ours.
import datasets
import evaluate

from msgrpo_hub.evaluation.statistics import mean_interval

_DESCRIPTION = "Mean undiscounted return of a player's episodes, with a 95 % interval over episodes."

_INPUTS = """
Args:
    rewards (`list` of `float`): the undiscounted return of each episode, at least one.
    seed (`int`): of the bootstrap; the same rewards and seed give the same interval. Defaults to 0.
    return_range (pair of `float`): the smallest and the largest possible return, if known.

Returns:
    mean (`float`): the mean return.
    low, high (`float` or `None`): the ends of the interval; `None` under 30 episodes, which are too few for one, and for
        nearly equal returns without a `return_range`.
    n (`int`): the number of episodes.
"""


class EpisodeReturn(evaluate.Metric):
    """The interval is over episodes, not over training seeds: it describes the checkpoint that played."""

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features({"rewards": datasets.Value("float64")})  # "float" would be float32
        return evaluate.MetricInfo(description=_DESCRIPTION, citation="", inputs_description=_INPUTS, features=features)

    def _compute(
        self, rewards: list[float], seed: int = 0, return_range: tuple[float, float] | None = None
    ) -> dict[str, float | None]:
        if not rewards:
            raise ValueError("rewards = []: expected the return of at least one episode")
        interval = mean_interval(rewards, seed, bounds=return_range)
        low, high = (interval.low, interval.high) if interval else (None, None)
        return {"mean": sum(rewards) / len(rewards), "low": low, "high": high, "n": len(rewards)}
