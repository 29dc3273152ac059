"""Inspect plays the episodes of `msgrpo eval` and gives them the same scores, to the last digit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.suites import Suite
from tests.models.openai_server import OpenAIServer, always, model, send

inspect_ai = pytest.importorskip("inspect_ai", reason="the extra inspect is not installed")

LAKE, SNAKE = "FrozenLake-Slippery-v1", "Snake-Standard-v1"
OF_EPISODES = ("reward", "success", "steps", "unreadable", "truncated_replies", "illegal")


def ours(server: OpenAIServer, game: str, folder: Path, episodes: int = 50, repeats: int = 1) -> Result:
    suite = Suite(name="quick", tasks=(game,), episodes=episodes, split="validation", repeats=repeats)
    [result] = evaluate(f"endpoint:{server.url}#m", suite, folder)
    return result


def theirs(server: OpenAIServer, game: str, folder: Path, **options: Any) -> Any:
    from msgrpo_hub.interop.inspect_task import text_game

    local = inspect_ai.model.get_model("openai-api/local/m", base_url=server.url, api_key="none", memoize=False)
    [log] = inspect_ai.eval(text_game(game, "quick"), model=local, log_dir=str(folder), display="none", **options)
    return log


def means(log: Any) -> dict[str, float]:
    return {score.name: score.metrics["mean"].value for score in log.results.scores}


@pytest.mark.parametrize(("game", "finish"), [(LAKE, "stop"), (SNAKE, "length")])
def test_50_episodes_and_their_scores_are_those_of_msgrpo_eval(game: str, finish: str, tmp_path: Path) -> None:
    with OpenAIServer(model(finish)) as server:
        run = ours(server, game, tmp_path / "ours")
        first = {(str(asked.body["messages"]), asked.body["seed"]) for asked in server.asked[1:]}  # after a probe
        server.asked.clear()
        log = theirs(server, game, tmp_path / "theirs")
    assert log.status == "success"
    assert {(str(asked.body["messages"]), asked.body["seed"]) for asked in server.asked} == first
    samples = sorted(log.samples, key=lambda sample: sample.id)
    assert len(samples) == 50
    for sample, episode, score in zip(samples, run.episodes, run.scores, strict=True):
        values = sample.scores["episode_score"].value
        assert sample.metadata["actions"] == [step.action for step in episode.steps]
        assert {name: values[name] for name in OF_EPISODES} == {name: float(getattr(score, name)) for name in OF_EPISODES}
        assert (values.get("luck_adjusted"), values.get("regret")) == (score.luck_adjusted, score.regret)
    found = means(log)
    assert found["reward"] == run.summary["reward"]["mean"]
    assert found["success"] == run.summary["success"]["mean"]
    assert found["unreadable" if finish == "stop" else "truncated_replies"] > 0
    assert ("luck_adjusted" in found) == (game == LAKE)


def test_epochs_are_our_repeats(tmp_path: Path) -> None:
    """Epoch n of a board is its member n − 1: other slips on the same ice."""
    with OpenAIServer(model()) as server:
        run = ours(server, LAKE, tmp_path / "ours", episodes=4, repeats=3)
        log = theirs(server, LAKE, tmp_path / "theirs", limit=4, epochs=3)
    played = {(sample.id, sample.epoch - 1): sample.metadata["actions"] for sample in log.samples}
    expected = {(index // 3, index % 3): [step.action for step in episode.steps] for index, episode in enumerate(run.episodes)}
    assert played == expected
    assert means(log)["reward"] == pytest.approx(run.summary["reward"]["mean"], abs=1e-12)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([model(), always(send(400, b'{"error": {"message": "no"}}'))], "no"),
        ([model("abort")], "no reply (unknown)"),
    ],
)
def test_a_refused_or_broken_reply_fails_the_sample_without_a_score(answers: list[Any], words: str, tmp_path: Path) -> None:
    with OpenAIServer(*answers) as server:
        log = theirs(server, SNAKE, tmp_path, limit=1)
    assert log.status == "error"
    assert words in log.error.message
    assert log.results is None or not log.results.scores


def test_the_command_finds_the_task_by_its_name(tmp_path: Path) -> None:
    with OpenAIServer(model()) as server:
        environment = os.environ | {"LOCAL_API_KEY": "none", "LOCAL_BASE_URL": server.url}
        task = ["msgrpo_hub/text_game", "-T", f"game={SNAKE}", "-T", "suite=quick", "--limit", "2"]
        command = [str(Path(sys.executable).parent / "inspect"), "eval", *task, "--model", "openai-api/local/m"]
        options = ["--log-dir", str(tmp_path / "log"), "--display", "none"]
        done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        settings = {(asked.body["temperature"], asked.body["max_tokens"]) for asked in server.asked}
    [path] = (tmp_path / "log").iterdir()
    log = inspect_ai.log.read_eval_log(str(path))
    assert (log.eval.metadata["game"], len(log.samples)) == (SNAKE, 2)
    assert settings == {(0.5, 256)}
