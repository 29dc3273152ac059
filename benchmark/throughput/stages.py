"""Where the time of an update goes: `python -m benchmark.throughput.stages OUTPUT.json`.

Wrappers time the functions at the library's interfaces. Times are exclusive: entering a stage stops the clock of the
enclosing stage, so that all stages and the rest add up to the whole.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmark.throughput.cases import Case, MeasuredTrainer, make_trainer
from benchmark.throughput.machine import clock, provenance
from benchmark.throughput.update import CASES, prepare
from msgrpo_hub import rollout
from msgrpo_hub.agent import prompt_formats
from msgrpo_hub.models import engine, sampling
from msgrpo_hub.models.attention import RowCache
from msgrpo_hub.models.forward import FastForward
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.training import trainer as training

OTHER = "other"
OUTSIDE = ("environment", "prompts", "tokenisation")
"""Stages outside the model, which together should stay under 5 % of an update."""

LABELS = ("lake", "lake, later", "snake", "snake, later", "snake, 64 tokens")
"""The layouts of the presets, at the base and some updates later, and long replies."""


class Stages:
    """Exclusive seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._stack: list[tuple[str, bool]] = [(OTHER, False)]
        self._since = 0.0

    def _switch(self) -> None:
        now = clock()
        self.seconds[self._stack[-1][0]] += now - self._since
        self._since = now

    def wrap(self, function: Callable[..., Any], stage: str | Callable[[], str], leaf: bool) -> Callable[..., Any]:
        """Wraps a function with the clock of a stage; inside a leaf no other stage starts."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._stack[-1][1]:
                return function(*args, **kwargs)
            self._switch()
            self._stack.append((stage if isinstance(stage, str) else stage(), leaf))
            try:
                return function(*args, **kwargs)
            finally:
                self._switch()
                self._stack.pop()

        return timed

    @contextmanager
    def watching(self, trainer: MeasuredTrainer) -> Iterator[None]:
        """Times an update, then restores every function."""
        replaced = [(owner, name, owner.__dict__.get(name)) for owner, name, *_ in watched(trainer)]
        for owner, name, stage, leaf in watched(trainer):
            setattr(owner, name, self.wrap(getattr(owner, name), stage, leaf))
        self._since = clock()
        try:
            yield
        finally:
            self._switch()
            for owner, name, before in replaced:
                if before is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)


def watched(trainer: MeasuredTrainer) -> list[tuple[Any, str, str | Callable[[], str], bool]]:
    """The timed functions, as (owner, function, stage, leaf)."""
    game, agent = type(trainer.game), trainer.agent
    tokenizer = type(getattr(agent, "policy", agent).tokenizer)
    return [
        *((game, name, "environment", True) for name in ("step", "initial_state", "legal_actions")),
        (prompt_formats, "parse_action", "environment", True),
        (rollout, "build_prompt", "prompts", True),
        (LanguageModel, "encode", "tokenisation", True),
        (tokenizer, "batch_decode", "tokenisation", True),
        (FastForward, "share", "prefill", True),
        (FastForward, "prefill", "prefill", True),
        (FastForward, "run", "decoding", True),
        (sampling, "draw_tokens", "drawing tokens", True),
        (engine, "fork", "forking rows", True),
        (RowCache, "select", "forking rows", True),
        *((engine.LogitCache, name, "caching", True) for name in ("get", "add")),
        *((training, name, "advantages, rows and trees", True) for name in ("select", "to_samples", "pack")),
        (engine, "token_log_probs", lambda: "training forward" if torch.is_grad_enabled() else "reference forward", True),
        (torch.Tensor, "backward", "training backward", True),
        (torch.optim.AdamW, "step", "optimiser", True),
    ]


def profile(case: Case, models: Path, updates: int = 5) -> dict[str, Any]:
    """Mean seconds by stage over some updates after the first, and the share outside the model."""
    trainer = make_trainer(case, models)
    trainer.update(1)
    stages = Stages()
    began = clock()
    with stages.watching(trainer):
        for index in range(2, updates + 2):
            trainer.update(index)
    total = (clock() - began) / updates
    longest_first = sorted(stages.seconds.items(), key=lambda item: -item[1])
    seconds = {stage: spent / updates for stage, spent in longest_first}
    outside = sum(seconds.get(stage, 0.0) for stage in OUTSIDE) / total
    return {"seconds": total, "stages": seconds, "share_outside_the_model": outside}


def main() -> None:
    """Profiles the presets and writes one JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmark.throughput.stages", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "msgrpo-throughput")
    parser.add_argument("--only", nargs="*", default=LABELS, choices=list(CASES), metavar="LABEL", help="cases of update.py")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    record: dict[str, Any] = provenance()
    prepare([CASES[label] for label in options.only], options.models)
    record["cases"] = [{"label": label, **profile(CASES[label], options.models)} for label in options.only]
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
