"""Jobs: what is sent, what is said before, what is refused before anything is sent, and what comes of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from msgrpo_hub import __version__
from tests.hub.conftest import msgrpo, refused
from tests.hub_server.client import LOADS_MODELS, Finished
from tests.hub_server.jobs import HARDWARE, Job
from tests.hub_server.lanes import Loopback

warm = LOADS_MODELS

TRAINING = "jobs train --game FrozenLake-NotSlippery-v1 --updates 2 --flavor a10g-large"
EVALUATION = "jobs eval random greedy --suite quick --flavor cpu-basic"


def put_file(repo: str) -> None:
    HfApi().create_repo(repo, private=False)
    HfApi().upload_file(path_or_fileobj=b"1", path_in_repo="a.txt", repo_id=repo)


def succeeds(job: Job) -> int:
    job.lines += ["first line", "second line\x1b[2J"]
    return 0


@pytest.fixture
def ready(loopback: Loopback) -> Loopback:
    """A Hub on which every job succeeds at once."""
    loopback.hub.runner = succeeds
    return loopback


def run(loopback: Loopback, line: str, *more: object, **settings: str) -> Finished:
    return (
        loopback.client(**settings).attempt(msgrpo, *line.split(), *more)
        if settings
        else loopback.owner.attempt(msgrpo, *line.split(), *more)
    )


def spec(loopback: Loopback) -> dict[str, Any]:
    [job] = loopback.hub.jobs.values()
    return dict(job.spec)


def test_a_training_is_sent_as_a_command_of_uv_whose_only_secrets_are_secrets(ready: Loopback, base: str) -> None:
    done = run(ready, TRAINING, "--base", base, "--push-to-hub", "ada/lake", "--attempts", 3, "--timeout", "90m", "--public")
    assert done.code == 0, done.err
    [job] = ready.hub.jobs.values()
    assert done.out.strip() == f"{ready.endpoint}/jobs/ada/{job.id}"
    command = job.spec.pop("command")
    assert command == [
        *("uv", "run", "--with", f"msgrpo-hub=={__version__}", "--python", "3.12", "--module", "msgrpo_hub"),
        *("train", "--output-dir=run", "--resume", "--accept-rounding", "--updates=2", "--checkpoint-every=10.0"),
        *(f"--base={base}", "--push-to-hub=ada/lake", "--checkpoint-repo=ada/lake-run", "--public"),
    ]
    assert job.spec == {
        "arguments": [],
        "environment": {"HF_ENDPOINT": ready.endpoint},
        "flavor": "a10g-large",
        "secrets": {"HF_TOKEN": ready.owner.token},
        "timeoutSeconds": 5400,
        "attempts": 3,
        "labels": {"name": "msgrpo-train"},
        "dockerImage": "ghcr.io/astral-sh/uv:python3.12-bookworm",
    }
    said = done.err.splitlines()
    assert said[0] == (
        "a10g-large (12 vCPU, 46 GB; 1 × A10G, 24 GB): $0.0250 a minute; at most $6.75 for 3 attempts of 1 h 30 min, "
        "as the Hub says now"
    )
    assert said[1] == "the state of the run goes to ada/lake-run (private)"
    assert said[2:4] == ["first line", "second line?[2J"]
    assert re.fullmatch(r"completed after 0 s, about \$0\.0000", said[4])
    assert "Next: msgrpo eval ada/lake" in done.err


def test_prices_are_asked_from_the_hub_each_time(ready: Loopback) -> None:
    dear = {**HARDWARE[0], "unitCostUSD": 3.5, "unitLabel": "hour"}
    ready.hub.hardware = [dear]
    done = run(ready, EVALUATION, "--push-to-hub", "ada/board", "--timeout", "2h", "--dry-run")
    assert "$3.5000 a hour; at most $7.00 for 2 h" in done.err
    ready.hub.hardware = [{**dear, "unitLabel": "job"}]
    done = run(ready, EVALUATION, "--push-to-hub", "ada/board", "--dry-run")
    assert "$3.5000 a job, as the Hub says now" in done.err
    assert not ready.hub.jobs


def test_a_dry_run_says_the_command_and_sends_nothing(ready: Loopback) -> None:
    done = run(ready, EVALUATION, "--push-to-hub", "ada/board", "--dry-run", "--json")
    assert done.code == 0, done.err
    plan = json.loads(done.out)
    assert plan["command"][:4] == ["msgrpo", "eval", "random", "greedy"]
    assert plan["price"] == {"usd": 0.0002, "unit": "minute", "most_usd": pytest.approx(0.012)}
    assert (plan["flavor"], plan["timeout"], plan["attempts"], plan["state"]) == ("cpu-basic", 3600, 1, "ada/board-run")
    assert not ready.hub.jobs
    assert not ready.requests("POST")


def test_several_gpus_get_a_process_each(ready: Loopback, base: str) -> None:
    line = TRAINING.replace("a10g-large", "a10g-largex4")
    assert run(ready, line, "--base", base, "--push-to-hub", "ada/lake").code == 0
    command = spec(ready)["command"]
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


def test_the_extras_that_a_run_needs_are_installed(ready: Loopback) -> None:
    more = ["--model", "ada/large", "--load-in-4bit", "--report-to", "tensorboard"]
    ready.owner.call(put_file, "ada/large")
    done = run(ready, TRAINING, *more, "--push-to-hub", "ada/lake")
    assert done.code == 0, done.err
    command = spec(ready)["command"]
    assert command[2:6] == ["--with", f"msgrpo-hub[quantized]=={__version__}", "--with", "tensorboard"]


def test_what_a_resumed_run_may_change_is_sent_as_it_was_typed(ready: Loopback, base: str) -> None:
    """Also where it is the default, since the run in the repository may have been begun otherwise."""
    typed = ["--max-rows", "512", "--report-to", "none", "--no-gradient-checkpointing"]
    done = run(ready, TRAINING, *typed, "--base", base, "--push-to-hub", "ada/lake")
    assert done.code == 0, done.err
    assert {"--max-rows=512", "--report-to=none", "--no-gradient-checkpointing"} <= {*spec(ready)["command"]}


def test_variables_become_secrets_by_their_names(ready: Loopback) -> None:
    done = run(ready, EVALUATION, "--push-to-hub", "ada/board", "--secret", "WANDB_API_KEY", WANDB_API_KEY="hidden value")
    assert done.code == 0, done.err
    assert spec(ready)["secrets"] == {"HF_TOKEN": ready.owner.token, "WANDB_API_KEY": "hidden value"}
    assert "hidden value" not in done.err + done.out


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
        (
            f"{EVALUATION} --push-to-hub ada/board --prompt-format mine:FORMAT",
            "--prompt-format 'mine:FORMAT' is on this machine only",
        ),
        (
            "jobs eval @ --flavor cpu-basic --push-to-hub ada/board",
            "is on this machine only: expected a player that the job can load",
        ),
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


def test_the_hub_that_wants_a_plan_or_another_token_is_told_in_one_line(ready: Loopback) -> None:
    ready.fail("unavailable", where="POST /api/jobs/ada", status=402, message="Jobs need a plan")
    done = run(ready, EVALUATION, "--push-to-hub", "ada/board")
    assert "'Jobs', HTTP 402 (Jobs need a plan): a paid plan is required" in done.err.splitlines()[-1]
    assert "jobs ps" not in done.err  # a refused job does not run
    done = ready.reader.attempt(msgrpo, *EVALUATION.split(), "--push-to-hub", "ada/board")
    assert "the token may not do this" in done.err.splitlines()[-1]
    done = ready.nobody.attempt(msgrpo, *EVALUATION.split(), "--push-to-hub", "ada/board")
    assert "no token for the Hub was found" in done.err.splitlines()[-1]


def test_a_log_that_breaks_off_does_not_ask_for_a_second_job(ready: Loopback) -> None:
    ready.fail("unavailable", where="GET /api/jobs/ada/[^/]+/logs", times=20)
    done = run(ready, EVALUATION, "--push-to-hub", "ada/board")
    [job] = ready.hub.jobs
    last = done.err.splitlines()[-1]
    assert "; unless it has ended, the job goes on: watch it with `hf jobs logs --follow " in last
    assert last.startswith("error: the job cannot be followed ('Jobs', HTTP 503 (")
    assert len(ready.hub.jobs) == 1, job


def test_a_lost_answer_says_to_look_before_another_job_is_sent(ready: Loopback) -> None:
    ready.fail("lost_answer", where="POST /api/jobs/ada", times=20)
    done = run(ready, EVALUATION, "--push-to-hub", "ada/board")
    look = "): look with `hf jobs ps` whether the job runs, before the same command sends another"
    assert done.err.splitlines()[-1].startswith("error: the Hub cannot be reached (")
    assert done.err.splitlines()[-1].endswith(look)


def test_another_run_in_the_repository_is_refused_before_it_costs_anything(ready: Loopback, base: str, trained: Path) -> None:
    from msgrpo_hub.hub.checkpoints import push_state

    ready.owner.call(push_state, trained, "ada/lake-run", ("config.toml",), "2 updates")
    done = run(ready, TRAINING, "--base", base, "--push-to-hub", "ada/lake")
    assert "'ada/lake-run' holds a run with " in done.err.splitlines()[-1]
    assert "or the name of another repository" in done.err.splitlines()[-1]
    assert not ready.hub.jobs
