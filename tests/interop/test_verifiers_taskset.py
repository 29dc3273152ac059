"""verifiers plays the episodes of `msgrpo eval` with its own command, and gives them the same rewards, to the last digit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.suites import Suite
from tests.models.openai_server import OpenAIServer, always, model, send

pytest.importorskip("verifiers", reason="the extra verifiers is not installed")

EXAMPLES = Path(__file__).parents[2] / "examples"
LAKE, SNAKE = "FrozenLake-Slippery-v1", "Snake-Standard-v1"


def vf_eval(server: OpenAIServer, folder: Path, game: str, *flags: str) -> tuple[int, list[dict[str, Any]], str]:
    """The exit status, traces in the order of the tasks, and output of the command with `examples/msgrpo_games.py`."""
    taskset = ["msgrpo-games", "--env.taskset.game", game, "--env.taskset.suite", "quick"]
    client = ["--model", "m", "--client.base-url", server.url, "--client.api-key-var", "LOCAL_KEY"]
    command = [str(Path(sys.executable).parent / "vf-eval"), *taskset, *client, "--no-push", "--no-rich"]
    environment = os.environ | {"PYTHONPATH": f"{EXAMPLES}:{EXAMPLES.parent}", "LOCAL_KEY": "none"}
    run = ["--output-dir", str(folder), "--run.name", "run", *flags]
    done = subprocess.run([*command, *run], env=environment, capture_output=True, text=True, check=False)
    said = done.stdout[-2000:] + done.stderr[-4000:]
    paths = list(folder.rglob("traces.jsonl"))
    assert len(paths) == 1, said
    lines = [json.loads(line) for line in paths[0].read_text(encoding="utf-8").splitlines()]
    traces = [trace for line in lines for trace in line.get("traces", [line])]
    return done.returncode, sorted(traces, key=lambda trace: trace["task"]["data"]["idx"]), said


@pytest.mark.parametrize("game", [LAKE, SNAKE])
def test_50_episodes_and_their_scores_are_those_of_msgrpo_eval(game: str, tmp_path: Path) -> None:
    with OpenAIServer(model()) as server:
        suite = Suite(name="quick", tasks=(game,), episodes=50, split="validation")
        [run] = evaluate(f"endpoint:{server.url}#m", suite, tmp_path / "ours")
        first = {(str(asked.body["messages"]), asked.body["seed"]) for asked in server.asked[1:]}  # after a probe
        server.asked.clear()
        code, traces, said = vf_eval(server, tmp_path / "theirs", game, "--env.taskset.repeats", "1")
    assert code == 0, said
    assert {(str(asked.body["messages"]), asked.body["seed"]) for asked in server.asked} == first
    assert {(asked.body["temperature"], asked.body["max_tokens"]) for asked in server.asked} == {(0.5, 256)}
    assert len(traces) == 50
    for trace, episode, score in zip(traces, run.episodes, run.scores, strict=True):
        ours = trace["info"]["msgrpo"]
        assert (trace["ok"], ours["member"]) == (True, 0)
        assert ours["actions"] == [step.action for step in episode.steps]
        assert trace["rewards"]["episode_return"]["score"] == score.reward
        assert ours["score"].get("luck_adjusted") == score.luck_adjusted
    mean = sum(trace["rewards"]["episode_return"]["score"] for trace in traces) / 50
    assert mean == pytest.approx(run.summary["reward"]["mean"], abs=1e-12)


def test_the_rollouts_of_a_group_share_their_start_and_not_their_chance(tmp_path: Path) -> None:
    with OpenAIServer(model()) as server:
        code, traces, said = vf_eval(server, tmp_path, LAKE, "--num-rollouts", "6", "--select.limit", "1")
    assert code == 0, said
    assert len({trace["task"]["data"]["seed"] for trace in traces}) == 1
    assert len({trace["info"]["msgrpo"]["member"] for trace in traces}) == len(traces) == 6


def test_a_server_that_refuses_gives_no_reward(tmp_path: Path) -> None:
    with OpenAIServer(model(), always(send(400, b'{"error": {"message": "no"}}'))) as server:
        _, traces, _ = vf_eval(server, tmp_path, LAKE, "--select.limit", "1")
    assert [(trace["ok"], trace["rewards"]) for trace in traces] == [(False, {})]
