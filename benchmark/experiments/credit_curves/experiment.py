"""Does better credit learn faster and more steadily? Learning curves of the credits over as many updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from benchmark.experiments.arms import compare_arms, titled
from benchmark.experiments.credit_curves.learning import learning_curve
from benchmark.experiments.curves import Arms, means_of
from benchmark.experiments.experiment import Values, configuration
from benchmark.experiments.headlines import LEAST
from benchmark.experiments.headlines import headline as of_arms

CONFIG = configuration("credit_curves")
COMPARED = compare_arms("credit_curves", "Does better credit learn faster and more steadily?", learning_curve)


def headline(rows: Mapping[str, Values]) -> str:
    """How the credits differ from the paper's, all of which learn from all episodes, and how their seeds spread."""
    found = [(title, of_arms(arms), _spread(arms)) for title, arms in titled(CONFIG, rows)]
    return "\n\n".join(f"**{title}.** {said} {spread}" for title, said, spread in found if said)


def _spread(arms: Arms) -> str:
    """The standard deviation over seeds of the first arm, and of the steadiest and the least steady one."""
    spread = {arm: float(np.std([*means_of(seeds).values()], ddof=1)) for arm, seeds in arms.items() if len(seeds) >= LEAST}
    least, most = min(spread, key=spread.__getitem__), max(spread, key=spread.__getitem__)
    return (
        f"Its seeds spread by {spread[next(iter(arms))]:.3f} (standard deviation); least {spread[least]:.3f} with “{least}”, most"
        f" {spread[most]:.3f} with “{most}”, which so few seeds do not tell apart."
    )


EXPERIMENT = replace(COMPARED, headline=headline)
