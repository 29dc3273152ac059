"""Compares an evaluation with playing one episode at a time: `python -m benchmark.throughput.evaluation OUTPUT.json`.

Both sides load the same model through transformers, see the same prompts, sample at the same temperature with the same
limit and score by the same rules. The plain side is the loop that one would write first: one episode at a time, one
`model.generate` per turn. It plays some of the episodes, and its time is scaled by steps; ours plays all of them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from benchmark import ended
from benchmark.throughput.rows import options, provenance
from msgrpo_hub.agent.action import parse_action
from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite, load_suite
from msgrpo_hub.games import make_game, stream
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.registry import identify
from msgrpo_hub.players.settings import PlayerSettings

SETTINGS = PlayerSettings(temperature=1.0, max_new_tokens=32)


def main(arguments: list[str]) -> None:
    """Measures every task of the suite `standard`, alternating between the sides, and writes one JSON file."""
    given = options(
        arguments,
        __doc__,
        player={"default": "pocket"},
        episodes={"type": int, "default": 200, "help": "episodes per task on our side"},
        plain_episodes={"type": int, "default": 5, "help": "episodes per task in the plain loop"},
    )
    suite = Suite(name="standard", tasks=load_suite("standard").tasks, episodes=given.episodes)
    tasks = {task: measure(given, suite, task) for task in suite.tasks}
    ours, plain = (sum(row[side] for row in tasks.values()) for side in ("seconds_ours", "seconds_plain_scaled"))
    text = json.dumps({"ratio": plain / ours, "player": given.player, "tasks": tasks, **provenance()}, indent=1)
    given.output.write_text(text + "\n")
    print(text)


def measure(given: argparse.Namespace, suite: Suite, task: str) -> dict[str, Any]:
    """Seconds of both sides on one task; ours include everything that `msgrpo eval` does after loading the model."""
    player = identify(given.player, SETTINGS)
    policy: Any = player.policy
    policy.engine.threads = given.threads
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        result = run_task(player, suite, task, Path(folder), batch_size=suite.episodes)
        ours = time.monotonic() - began
    agent = LanguageModel.from_pretrained(given.player, temperature=1.0, max_new_tokens=SETTINGS.max_new_tokens)
    began = time.monotonic()
    steps = sum(play_plainly(agent, task, seed) for seed in suite.seeds(task)[: given.plain_episodes])
    scaled = (time.monotonic() - began) / steps * result.summary["steps"]
    return {
        "episodes": suite.episodes,
        "steps": result.summary["steps"],
        "seconds_ours": ours,
        "plain_episodes": given.plain_episodes,
        "plain_steps": steps,
        "seconds_plain_scaled": scaled,
        "ratio": scaled / ours,
    }


@torch.no_grad()
def play_plainly(agent: LanguageModel, task: str, seed: int) -> int:
    """One episode with `model.generate`, one call per turn. Returns its number of steps."""
    game = make_game(task)
    state, dynamics = game.initial_state(stream(seed, "initial_state")), stream(seed, "dynamics", 0)
    torch.manual_seed(int(np.random.default_rng(seed).integers(2**31)))
    for turn in range(game.horizon):
        [text] = agent.render([build_prompt(game, state)])
        inputs = agent.tokenizer(text, return_tensors="pt", add_special_tokens=False).to(agent.model.device)
        output = cast(Any, agent.model).generate(
            **inputs, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=agent.max_new_tokens
        )
        reply = agent.tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        after = game.step(state, parse_action(str(reply), game.actions), dynamics)
        state = after.state
        if after.terminated or after.truncated:
            return turn + 1
    return game.horizon


if __name__ == "__main__":
    ended(main)
