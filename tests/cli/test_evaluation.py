"""`msgrpo eval`: data on standard output, progress on standard error, failing servers, estimates and interrupts."""

from __future__ import annotations

import json
import signal
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from msgrpo_hub.evaluation.results import find_results
from tests.cli.suites import FIRM, SLIPPERY, SNAKE, Run, write_suite
from tests.command import Command
from tests.models.openai_server import OpenAIServer, always, chat_completion, send


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suites")
    write_suite(folder / "mixed.toml", 6, FIRM, SNAKE, f"{SLIPPERY}:compass")
    write_suite(folder / "snakes.toml", 2, SNAKE)
    write_suite(folder / "lake.toml", 3, FIRM)
    return folder


def test_a_table_comes_out_on_standard_output_and_progress_on_standard_error(run: Run, suites: Path, tmp_path: Path) -> None:
    ended = run("eval", "random", "greedy", "--suite", suites / "mixed.toml", "--output-dir", tmp_path / "out")
    assert ended.code == 0, ended.err
    for task in (FIRM, SNAKE, f"{SLIPPERY}:compass"):
        assert f"{task}   6 validation episodes" in ended.out
        assert f"random · {task}: 100%" in ended.err
    assert [line.split()[0] for line in ended.out.splitlines() if line.startswith(("random", "greedy"))].count("greedy") == 3
    assert "%|" not in ended.out
    assert ended.said == [f"Next: msgrpo report {tmp_path / 'out'}", f"      msgrpo verify {tmp_path / 'out'}"]


def test_json_is_all_of_standard_output_and_agrees_with_the_files(run: Run, suites: Path, tmp_path: Path) -> None:
    arguments = ("eval", "random", "random-safe", "--suite", suites / "mixed.toml", "--output-dir", tmp_path, "--json")
    first, second = run(*arguments), run(*arguments)
    rows = json.loads(first.out)
    assert first.out == second.out  # complete runs are read, not played
    assert "100%" in first.err
    assert "100%" not in second.err
    assert [(row["player"], row["task"]) for row in rows] == [
        (player, task) for player in ("random", "random-safe") for task in (FIRM, SNAKE, f"{SLIPPERY}:compass")
    ]
    for row in rows:
        stored = json.loads((Path(row["folder"]) / "results.json").read_text())
        assert {name: row[name] for name in stored} == stored
        assert row["complete"] is True
        assert row["run"] == Path(row["folder"]).name


def test_a_model_behind_a_server_is_played_with_its_tokens_counted(run: Run, suites: Path, tmp_path: Path) -> None:
    with OpenAIServer(lambda _body: chat_completion("<think>east</think><action>Right</action>")) as server:
        name = f"endpoint:{server.url}#some/model"
        flags = ("--json", "--temperature", "0", "--extra-body", '{"reasoning_effort": "low"}')
        ended = run("eval", name, "--suite", suites / "lake.toml", "--output-dir", tmp_path, *flags)
    assert ended.code == 0, ended.err
    [row] = json.loads(ended.out)
    assert len(server.asked) == 1 + row["steps"]  # the first request tests the server
    assert (row["player"], row["episodes"], row["unreadable_rate"]) == (name, 3, 0)
    assert (row["prompt_tokens"], row["reply_tokens"]) == (7 * row["steps"], 41 * row["steps"])
    assert {(asked.body["temperature"], asked.body["reasoning_effort"]) for asked in server.asked} == {(0, "low")}
    assert [r["problems"] for r in json.loads(run("verify", tmp_path, "--json").out)] == [[]]


def test_the_run_and_the_screen_show_why_a_server_failed_without_the_key(
    run: Run, suites: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_quota(handler: BaseHTTPRequestHandler) -> None:
        key = handler.headers.get("Authorization", "")
        send(429, f"quota of {key} spent".encode(), {"Retry-After": "3600"})(handler)

    monkeypatch.setenv("MSGRPO_ENDPOINT_KEY", "sk-very-secret-0123456789")
    reason = "HTTP 429 after 1 attempt (the server asked to wait 3600 s): quota of Bearer *** spent"
    with OpenAIServer(lambda _body: chat_completion("<action>Left</action>"), always(out_of_quota)) as server:
        player = f"endpoint:{server.url}?key=very-secret#m"
        arguments = ("eval", player, "--suite", suites / "lake.toml", "--output-dir", tmp_path)
        ended = run(*arguments, "--json")
        assert ended.code == 2
        [result] = find_results(tmp_path)
        assert result.player == result.config["identity"]["server"] == f"endpoint:{server.url}#m"
        assert [(row["index"], row["turn"], row["error"]) for row in result.failures] == [(n, 1, reason) for n in range(3)]
        assert json.loads(ended.out)[0]["failures"] == result.failures
        assert f"incomplete: {result.player} on {result.task}, 3 episodes failed\n    3 × {reason}\n" in ended.err
        assert ended.err.count(f"failed: {reason}") == 1  # immediately, beside the bar
        stored = "".join(path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
        assert "very-secret" not in stored + ended.err + ended.out
        server.faults = lambda _body, _before: None
        assert run(*arguments).code == 0
    [result] = find_results(tmp_path)
    assert (result.complete, result.failures, list(tmp_path.rglob("failures.jsonl"))) == (True, [], [])


def test_an_estimate_prints_text_or_json_and_leaves_no_file(run: Run, suites: Path, tmp_path: Path) -> None:
    server = "endpoint:http://127.0.0.1:9/v1#m"
    arguments = ("eval", "random", server, "--suite", suites / "mixed.toml", "--output-dir", tmp_path / "out", "--estimate")
    rates = ("--price-in", 0.5, "--price-out", 2, "--concurrency", 4)
    text, data = run(*arguments, *rates), run(*arguments, *rates, "--json")
    scripted, served = json.loads(data.out)
    assert (text.code, data.code) == (0, 0)
    assert [row["player"] for row in (scripted, served)] == ["random", server]
    assert [len(row["tasks"]) for row in (scripted, served)] == [3, 3]
    assert (served["calls_at_once"], served["tasks"][0]["episodes"]) == (4, 6)
    assert f"{SNAKE} " in text.out
    assert "$0." in text.out
    flags = f"--suite {suites / 'mixed.toml'} --output-dir {tmp_path / 'out'} --concurrency 4"
    assert text.said == [f"Next: msgrpo eval random '{server}' {flags}"]
    assert not (tmp_path / "out").exists()


def test_ctrl_c_is_a_line_that_says_that_nothing_is_lost(msgrpo: Command, tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite.toml", 400, "Snake-Standard-v1")
    running = msgrpo.start("eval", "random-safe", "--suite", suite, "--batch-size", "5", "--output-dir", tmp_path / "out")
    while not list(tmp_path.rglob("episodes.jsonl")):
        time.sleep(0.02)
    running.send(signal.SIGINT)
    ended = running.wait()
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.splitlines()[-1].startswith("interrupted; finished episodes are kept")
