"""Where the time of an update goes: `python -m benchmark.throughput.stages OUTPUT.json`.

Wrappers time the functions at the library's interfaces. Times are exclusive: entering a stage stops the clock of the
enclosing stage, so that all stages and the rest add up to the whole.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmark import ended
from benchmark.throughput.cases import Case, MeasuredTrainer, make_trainer
from benchmark.throughput.rows import clock, options, provenance
from benchmark.throughput.update import CASES, prepare
from msgrpo_hub import rollout
from msgrpo_hub.agent import prompt_formats
from msgrpo_hub.models import engine, sampling
from msgrpo_hub.models.attention import RowLayer
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
        self._stack = [OTHER]
        self._since = 0.0

    def _switch(self) -> None:
        now = clock()
        self.seconds[self._stack[-1]] += now - self._since
        self._since = now

    def wrap(self, function: Callable[..., Any], stage: str | Callable[[], str]) -> Callable[..., Any]:
        """Wraps a function with the clock of a stage; inside it no other stage starts."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if len(self._stack) > 1:
                return function(*args, **kwargs)
            self._switch()
            self._stack.append(stage if isinstance(stage, str) else stage())
            try:
                return function(*args, **kwargs)
            finally:
                self._switch()
                self._stack.pop()

        return timed

    @contextmanager
    def watching(self, trainer: MeasuredTrainer) -> Iterator[None]:
        """Times an update, then restores every function."""
        replaced = [(owner, name, stage, owner.__dict__.get(name)) for owner, name, stage in watched(trainer)]
        for owner, name, stage, _ in replaced:
            setattr(owner, name, self.wrap(getattr(owner, name), stage))
        self._since = clock()
        try:
            yield
        finally:
            self._switch()
            for owner, name, _, before in replaced:
                if before is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)


def watched(trainer: MeasuredTrainer) -> list[tuple[Any, str, str | Callable[[], str]]]:
    """The timed functions, as (owner, function, stage)."""
    game, agent = type(trainer.game), trainer.agent
    tokenizer = type(getattr(agent, "policy", agent).tokenizer)
    return [
        *((game, name, "environment") for name in ("step", "initial_state", "legal_actions")),
        (prompt_formats, "parse_action", "environment"),
        (rollout, "build_prompt", "prompts"),
        (LanguageModel, "encode", "tokenisation"),
        (tokenizer, "batch_decode", "tokenisation"),
        (FastForward, "share", "prefill"),
        (FastForward, "prefill", "prefill"),
        (FastForward, "run", "decoding"),
        (sampling, "draw_tokens", "drawing tokens"),
        (engine, "fork", "forking rows"),
        (RowLayer, "reorder_cache", "forking rows"),
        *((training, name, "advantages, rows and trees") for name in ("select", "to_samples", "pack")),
        (engine, "token_log_probs", lambda: "training forward" if torch.is_grad_enabled() else "reference forward"),
        (torch.Tensor, "backward", "training backward"),
        (torch.optim.AdamW, "step", "optimiser"),
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
    seconds = {stage: spent / updates for stage, spent in sorted(stages.seconds.items(), key=lambda item: -item[1])}
    outside = sum(seconds.get(stage, 0.0) for stage in OUTSIDE) / total
    return {"seconds": total, "stages": seconds, "share_outside_the_model": outside}


def main(arguments: list[str]) -> None:
    """Profiles the presets and writes one JSON file."""
    cases = {"nargs": "*", "default": LABELS, "choices": list(CASES), "metavar": "LABEL", "help": "cases of update.py"}
    given = options(arguments, __doc__, only=cases)
    record: dict[str, Any] = provenance()
    prepare([CASES[label] for label in given.only], given.models)
    record["cases"] = [{"label": label, **profile(CASES[label], given.models)} for label in given.only]
    text = json.dumps(record, indent=1)
    given.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    ended(main)
