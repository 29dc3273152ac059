"""Jobs: the request, the price named before it, the refusals before anything is sent, and the end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub import __version__
from msgrpo_hub.hub.checkpoints import push_state
from tests.hub.commands import msgrpo, refused
from tests.hub_server.client import LOADS_MODELS, Client, Finished, put
from tests.hub_server.jobs import Job
from tests.hub_server.lanes import Loopback

warm = LOADS_MODELS

TRAINING = "jobs train --game FrozenLake-NotSlippery-v1 --updates 2 --flavor a10g-large"
EVALUATION = "jobs eval random greedy --suite quick --flavor cpu-basic"


def succeeds(job: Job) -> int:
    job.lines += ["first line", "second line\x1b[2J"]
    return 0


@pytest.fixture
def ready(loopback: Loopback) -> Loopback:
    loopback.hub.runner = succeeds
    return loopback


def run(loopback: Loopback, line: str, *more: object, **settings: str) -> Finished:
    return loopback.client(**settings).attempt(msgrpo, *line.split(), *more)


def spec(loopback: Loopback) -> dict[str, Any]:
    [job] = loopback.hub.jobs.values()
    return dict(job.spec)


def test_a_training_is_sent_as_a_command_of_uv_with_named_variables_as_secrets(ready: Loopback, base: str) -> None:
    flags = ("--base", base, "--push-to-hub", "ada/lake", "--attempts", 3, "--timeout", "90m", "--public", "--secret", "KEY")
    done = run(ready, TRAINING, *flags, KEY="hidden value")
    assert done.code == 0, done.err
    assert "hidden value" not in done.err + done.out
    [job] = ready.hub.jobs.values()
    assert done.out.strip() == f"{ready.endpoint}/jobs/ada/{job.id}"
    assert job.spec.pop("command") == [
        *("uv", "run", "--with", f"msgrpo-hub=={__version__}", "--python", "3.12", "--module", "msgrpo_hub"),
        *("train", "--output-dir=run", "--resume", "--accept-rounding", "--updates=2", "--checkpoint-every=10.0"),
        *(f"--base={base}", "--push-to-hub=ada/lake", "--checkpoint-repo=ada/lake-run", "--public"),
    ]
    assert job.spec == {
        "arguments": [],
        "environment": {"HF_ENDPOINT": ready.endpoint},
        "flavor": "a10g-large",
        "secrets": {"HF_TOKEN": ready.owner.token, "KEY": "hidden value"},
        "timeoutSeconds": 5400,
        "attempts": 3,
        "labels": {"name": "msgrpo-train"},
        "dockerImage": "ghcr.io/astral-sh/uv:python3.12-bookworm",
    }
    machine = "a10g-large (12 vCPU, 46 GB; 1 × A10G, 24 GB): $0.0250 a minute"
    first, second, *lines, end = done.err.splitlines()[:5]
    assert first == f"{machine}; at most $6.75 for 3 attempts of 1:30:00, as the Hub says now"
    assert second == "the state of the run goes to ada/lake-run (private)"
    assert lines == ["first line", "second line?[2J"]
    assert re.fullmatch(r"completed after 0:00:00, about \$0\.00", end)
    assert "Next: msgrpo eval ada/lake" in done.err


def test_a_dry_run_says_the_command_and_sends_nothing(ready: Loopback) -> None:
    done = run(ready, EVALUATION, "--push-to-hub", "ada/board", "--dry-run", "--json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    assert plan["command"][:4] == ["msgrpo", "eval", "random", "greedy"]
    assert "cpu-basic (2 vCPU, 16 GB): $0.0002 a minute; at most $0.02 for 1:00:00, as the Hub says now" in done.err
    assert plan["price"] == {"usd": 0.0002, "unit": "minute", "most_usd": pytest.approx(0.012)}
    assert (plan["flavor"], plan["timeout"], plan["attempts"], plan["state"]) == ("cpu-basic", 3600, 1, "ada/board-run")
    assert not ready.hub.jobs
    assert not ready.requests("POST")


def test_several_gpus_get_a_process_each_and_the_run_the_extras_that_it_needs(ready: Loopback) -> None:
    ready.owner.call(put, "ada/large", {"a.txt": b"1"})
    more = ["--model", "ada/large", "--load-in-4bit", "--report-to", "tensorboard", "--push-to-hub", "ada/lake"]
    more += [
        "--max-rows",
        "512",
        "--no-gradient-checkpointing",
    ]  # defaults that a resumed run may change
    done = run(ready, TRAINING.replace("a10g-large", "a10g-largex4"), *more)
    assert done.code == 0, done.err
    command = spec(ready)["command"]
    assert {"--max-rows=512", "--no-gradient-checkpointing"} <= {*command}
    assert command[2:6] == ["--with", f"msgrpo-hub[quantized]=={__version__}", "--with", "tensorboard"]
    first = command.index("--module")
    assert command[first : first + 5] == ["--module", "torch.distributed.run", "--nproc-per-node=4", "--module", "msgrpo_hub"]


def test_a_wheel_goes_to_the_private_repository_and_the_job_sees_it_as_a_file(ready: Loopback, tmp_path: Path) -> None:
    wheel = tmp_path / "msgrpo_hub-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK wheel")
    for _ in range(2):
        done = run(ready, EVALUATION, "--push-to-hub", "ada/board", "--wheel", wheel)
        assert done.code == 0, done.err
    stored = ready.stored("ada/board-run")
    assert stored.private
    [path] = [path for path in ready.files("ada/board-run") if path.endswith(".whl")]
    assert ready.files("ada/board-run")[path] == b"PK wheel"
    assert len(ready.commits("ada/board-run")) == 2  # the second job found it there
    for job in ready.hub.jobs.values():
        assert f"msgrpo-hub @ file:///msgrpo-package/{wheel.name}" in job.spec["command"]
        [volume] = job.spec["volumes"]
        assert volume == {
            **{"type": "model", "source": "ada/board-run", "mountPath": "/msgrpo-package"},
            **{"path": str(Path(path).parent), "readOnly": True},
        }


def test_a_job_that_fails_ends_the_command_with_its_reason(loopback: Loopback) -> None:
    loopback.hub.runner = lambda _: 7
    done = run(loopback, EVALUATION, "--push-to-hub", "ada/board", "--attempts", "2")
    [job] = loopback.hub.jobs.values()
    assert (done.code, job.attempts) == (2, 2)
    assert done.err.splitlines()[-1] == (
        f"error: the job ended as ERROR (Job failed with exit code: 7): see {loopback.endpoint}/jobs/ada/{job.id}; the same "
        "command again goes on with the run"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"{EVALUATION} --push-to-hub ada/board --output-dir here", "--output-dir is a folder of this machine"),
        (EVALUATION, "expected --push-to-hub USER/NAME"),
        (f"{EVALUATION} --push-to-hub nobody", "'nobody' is not a repository name"),
        (f"{EVALUATION} --push-to-hub ada/board --timeout soon", "--timeout 'soon': expected a number with s, m, h or d"),
        (f"{EVALUATION} --push-to-hub ada/board --wheel gone.whl", "--wheel 'gone.whl': expected a wheel of msgrpo-hub"),
        (f"{EVALUATION} --push-to-hub ada/board --suite mine.toml", "--suite 'mine.toml' is a file of this machine"),
        (f"{EVALUATION} --push-to-hub ada/board --prompt-format mine:FORMAT", "'mine:FORMAT' is on this machine only"),
        ("jobs eval moth:fly --flavor cpu-basic --push-to-hub ada/board", "'moth:fly' is on this machine only"),
        ("jobs eval @ --flavor cpu-basic --push-to-hub ada/board", "only: expected a player that the job can load"),
        (f"{EVALUATION.replace('cpu-basic', 'a10g-larg')} --push-to-hub ada/board", "did you mean 'a10g-large'?"),
        (f"{TRAINING} --push-to-hub ada/lake", "the base 'pocket' is on this machine only"),
        (f"{TRAINING} --push-to-hub ada/lake --model @", "--model '@' is on this machine only"),
        (f"{TRAINING} --push-to-hub ada/lake --acting vllm:http://127.0.0.1:1", "servers must see the run folder"),
        (f"{TRAINING} --push-to-hub ada/lake --checkpoint-repo ada/lake", "are both 'ada/lake': expected a repository for each"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_sent(line: str, words: str, ready: Loopback, tmp_path: Path) -> None:
    done = run(ready, line.replace("@", str(tmp_path)))
    assert words.replace("@", str(tmp_path)) in refused(done)
    assert not ready.hub.jobs
    assert not ready.requests("POST")


def test_each_failure_of_the_hub_is_one_line_and_only_a_lost_answer_says_to_look_for_the_job(ready: Loopback) -> None:
    def last(client: Client) -> str:
        return client.attempt(msgrpo, *EVALUATION.split(), "--push-to-hub", "ada/board").err.splitlines()[-1]

    ready.fail("POST /api/jobs/ada", status=402, message="Jobs need a plan")
    said = last(ready.owner)
    assert "'Jobs', HTTP 402 (Jobs need a plan): a paid plan is required" in said
    assert "jobs ps" not in said
    assert "the token may not do this" in last(ready.reader)
    assert "no token for the Hub was found" in last(ready.nobody)
    for fault, words in (({"status": 0, "truncate": 0}, "the Hub cannot be reached ("), ({"status": 500}, "'Jobs', HTTP 500 (")):
        ready.fail("POST /api/jobs/ada", times=20, **fault)
        said = last(ready.owner)
        assert said.startswith(f"error: {words}")
        assert said.endswith("look with `hf jobs ps` whether the job runs, before the same command sends another")
        ready.world.faults.clear()


def test_a_log_that_breaks_off_does_not_ask_for_a_second_job(ready: Loopback) -> None:
    ready.fail("GET /api/jobs/ada/[^/]+/logs", times=20)
    last = run(ready, EVALUATION, "--push-to-hub", "ada/board").err.splitlines()[-1]
    assert last.startswith("error: 'Jobs', HTTP 503 (")
    assert "watch the job with `hf jobs logs --follow " in last
    assert len(ready.hub.jobs) == 1


def test_another_run_in_the_repository_is_refused_before_it_costs_anything(ready: Loopback, base: str, trained: Path) -> None:
    ready.owner.call(push_state, trained, "ada/lake-run", ("config.toml",), "2 updates")
    last = run(ready, TRAINING, "--base", base, "--push-to-hub", "ada/lake").err.splitlines()[-1]
    assert re.search("'ada/lake-run' holds a run with .* or the name of another repository", last)
    assert not ready.hub.jobs
