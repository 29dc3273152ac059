"""Two players' returns on the same seeds, compared, for the `evaluate` library."""

# One import per line, and `import evaluate` whole: `evaluate.load` reads these lines one by one, and takes the first
# module class among this file's names for ours.
import datasets
import evaluate

from msgrpo_hub.evaluation.paired import compare_paired

_DESCRIPTION = "Difference of two players' mean returns on the same seeds, with a 95 % interval, a test and a verdict."

_INPUTS = """
Args:
    rewards_a (`list` of `float`): the return, or the success as 0 or 1, of the first player's episodes.
    rewards_b (`list` of `float`): the second player's, on the same seeds in the same order.
    seed (`int`): of the resampling; the same rewards and seed give the same numbers. Defaults to 0.
    return_range (pair of `float`): the smallest and the largest possible return, if known.

Returns:
    difference (`float`): the mean of b − a.
    low, high (`float` or `None`): its 95 % interval: Newcombe's for success, else a studentised bootstrap. `None` under 30
        pairs, and for nearly equal differences without a `return_range`.
    p (`float`): two-sided, of the sign-flip test; for success this is McNemar's exact test.
    correlation (`float` or `None`): Pearson's r over the seeds; `None` where a player's results are all equal.
    detectable (`float` or `None`): the smallest difference that so many pairs find 8 times in 10; `None` if none.
    verdict (`str`): "better" or "worse" (b than a, where p < 0.05), or "inconclusive".
    n (`int`): the number of pairs.
"""


class PairedReturn(evaluate.Comparison):
    """One comparison. If several are reported together, adjust their p-values (`msgrpo_hub.evaluation.paired.holm`)."""

    def _info(self) -> evaluate.ComparisonInfo:
        number = datasets.Value("float64")  # "float" would be float32
        features = datasets.Features({"rewards_a": number, "rewards_b": number})
        return evaluate.ComparisonInfo(description=_DESCRIPTION, citation="", inputs_description=_INPUTS, features=features)

    def _compute(
        self, rewards_a: list[float], rewards_b: list[float], seed: int = 0, return_range: tuple[float, float] | None = None
    ) -> dict[str, float | str | None]:
        found = compare_paired(rewards_a, rewards_b, seed, bounds=return_range)
        low, high = (found.interval.low, found.interval.high) if found.interval else (None, None)
        names = ("difference", "p", "correlation", "detectable", "verdict", "n")
        result = {name: getattr(found, name) for name in names}
        return {**result, "low": low, "high": high}
