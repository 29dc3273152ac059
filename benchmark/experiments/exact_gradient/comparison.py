"""An estimator against the exact gradient: bias, variance, cosine, from the inner products of all gradients involved."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from benchmark.experiments.exact_gradient.exact import Floats

# Shapes: U updates, E entries of the policy's table.

BLOCKS = 25
"""Blocks of updates that the jackknife leaves out, one at a time."""

TARGET = 0.9
"""The cosine that `updates_needed` is about."""


def compare(weights: Floats, exact: Floats, gram: Floats, control: Floats | None = None) -> dict[str, tuple[float, float]]:
    """Each statistic of an estimator with its standard error, by the jackknife over blocks of updates.

    Args:
        weights: (U, E) the weights of ∇log π in the estimate of each update.
        exact: (E,) those of the exact gradient.
        gram: (E, E) the inner products of the ∇log π.
        control: (U, E) an estimator from the same episodes whose expectation is the exact gradient: a control variate, which
            takes noise from the mean and leaves its expectation.

    Returns:
        Name → (value, standard error); see `_Sums.statistics`.
    """
    sums, every = _Sums(weights, exact, gram, exact[None] if control is None else control), np.arange(len(weights))
    left_out = [sums.statistics(np.delete(every, block)) for block in np.array_split(every, BLOCKS)]
    found = sums.statistics(every)
    return {name: (value, _jackknife([other[name] for other in left_out])) for name, value in found.items()}


def _jackknife(values: list[float]) -> float:
    """The standard error from the statistics without one block each (Efron and Stein, 1981); infinite if one of them is."""
    return float(np.sqrt((len(values) - 1) * np.var(values))) if np.isfinite(values).all() else float("inf")


class _Sums:
    """Squared lengths and inner products of the updates."""

    def __init__(self, weights: Floats, exact: Floats, gram: Floats, control: Floats) -> None:
        self.gram, self.weights = gram, weights
        self.squares = _products(weights, weights, gram)
        self.along = weights @ (gram @ exact)
        self.length = float(np.sqrt(exact @ gram @ exact))
        noise, centred = control - exact, weights - weights.mean(axis=0)
        coefficient = _products(centred, noise, gram).sum() / max(_products(noise, noise, gram).sum(), 1e-300)
        self.reduced = weights - coefficient * noise
        self.reduced_squares = _products(self.reduced, self.reduced, gram)
        self.reduced_along = self.reduced @ (gram @ exact)

    def statistics(self, updates: npt.NDArray[np.int64]) -> dict[str, float]:
        """The statistics over some updates.

        `cosine`: mean over updates of the cosine of the estimate to the exact gradient; an estimate of 0 has cosine 0.
        `cosine_of_mean`: cosine of the estimator's expectation; 1 is an unbiased direction.
        `bias`: |E g − ∇J| / |∇J|. `scaled_bias`: the same after the best scaling of the estimator.
        `variance`: E|g − E g|² / |E g|², of one update.
        `updates_needed`: how many updates' mean has cosine `TARGET`; infinite if none has.

        Squared lengths of means are corrected for the noise in them. A cosine may therefore exceed 1 by its standard error.
        """
        spread = _variance(self.weights[updates], self.squares[updates], self.gram)
        mean = self.reduced[updates].mean(axis=0)
        noise = _variance(self.reduced[updates], self.reduced_squares[updates], self.gram)
        length = max(float(mean @ self.gram @ mean) - noise / len(updates), 1e-300)
        along = float(self.reduced_along[updates].mean())
        cosine = along / (np.sqrt(length) * self.length)
        scaled = np.sqrt(np.maximum(self.squares[updates], 1e-300)) * self.length
        return {
            "cosine": float((self.along[updates] / scaled).mean()),
            "cosine_of_mean": cosine,
            "bias": float(np.sqrt(max(length - 2 * along + self.length**2, 0.0)) / self.length),
            "scaled_bias": float(np.sqrt(max(1 - cosine**2, 0.0))),
            "variance": spread / length,
            "updates_needed": _needed(spread / length, min(cosine, 1.0)),
        }


def _products(a: Floats, b: Floats, gram: Floats) -> Floats:
    """(U,) the inner product of each row of a with that of b."""
    products: Floats = np.einsum("ue,ue->u", a @ gram, np.broadcast_to(b, a.shape))
    return products


def _variance(weights: Floats, squares: Floats, gram: Floats) -> float:
    """E|g − E g|², unbiased."""
    mean = weights.mean(axis=0)
    return float(squares.mean() - mean @ gram @ mean) * len(weights) / (len(weights) - 1)


def _needed(variance: float, cosine_of_mean: float) -> float:
    """n with cos² = cosine_of_mean² / (1 + variance / n) = TARGET²; infinite if the bias alone is too large."""
    room = (cosine_of_mean / TARGET) ** 2 - 1
    return variance / room if cosine_of_mean > 0 and room > 0 else float("inf")
