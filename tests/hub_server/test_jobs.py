"""Jobs: accepted, run as often as asked, shown without their secrets; what the Hub would refuse is refused."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_hub import HfApi, Volume

from tests.hub_server.client import ClientError
from tests.hub_server.jobs import Job, mounted
from tests.hub_server.lanes import Loopback
from tests.hub_server.operations import put

IMAGE = "python:3.12"


def send(**changes: Any) -> str:
    spec: dict[str, Any] = {"image": IMAGE, "command": ["true"], "flavor": "cpu-basic"}
    return HfApi().run_job(**spec | changes).id


def shown(job: str) -> tuple[str, dict[str, Any], list[str]]:
    lines = list(HfApi().fetch_job_logs(job_id=job, follow=True))
    info = HfApi().inspect_job(job_id=job)
    return str(info.status.stage), info.secrets or {}, lines


def send_with_volume(repo: str, path: str) -> str:
    return send(volumes=[Volume(type="model", source=repo, mount_path="/there", path=path)])


def test_a_job_is_started_until_it_succeeds_and_its_log_ends_with_it(loopback: Loopback) -> None:
    def runner(job: Job) -> int:
        job.lines.append(f"attempt {job.attempts} has {job.environment['KEY']}")
        return 2 - job.attempts

    loopback.hub.runner = runner
    job = loopback.owner.call(send, secrets={"KEY": "hidden"}, attempts=3)
    assert loopback.owner.call(shown, job) == ("COMPLETED", {"KEY": None}, ["attempt 1 has hidden", "attempt 2 has hidden"])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"flavor": "a11g"}, "unknown flavor"),
        ({"command": []}, "expected texts"),
        ({"env": {"TOKEN": "hf_test_owner"}}, "a secret is readable"),
        ({"command": ["echo", "hidden"], "secrets": {"KEY": "hidden"}}, "a secret is readable"),
        ({"env": {"NUMBER": 3}}, "expected texts"),
        ({"env": {"NOT A NAME": "3"}}, "expected names of variables"),
        ({"attempts": 0}, "one to ten attempts"),
        ({"expose": [8000]}, "expose: unknown"),
        ({"name": "a job"}, "labels have letters"),
    ],
)
def test_a_wrong_job_is_refused(changes: dict[str, Any], why: str, loopback: Loopback) -> None:
    with pytest.raises(ClientError, match=why):
        loopback.owner.call(send, **changes)
    assert not loopback.hub.jobs


def test_nobody_starts_or_sees_jobs_of_others(loopback: Loopback) -> None:
    job = loopback.owner.call(send)
    with pytest.raises(ClientError, match="403"):
        loopback.reader.call(send)
    with pytest.raises(ClientError, match="404"):
        loopback.stranger.call(shown, job)
    with pytest.raises(ClientError, match="no token found"):
        loopback.nobody.call(send)


def test_a_volume_is_a_folder_of_a_repository_that_the_owner_sees(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, {"wheels/a.whl": b"wheel", "b.txt": b"other"})
    job = loopback.owner.call(send_with_volume, repo, "wheels")
    assert mounted(loopback.hub.jobs[job], loopback.hub) == {"/there/a.whl": b"wheel"}
    with pytest.raises(ClientError, match="no such folder to mount"):
        loopback.owner.call(send_with_volume, repo, "gone")
    with pytest.raises(ClientError, match="Repository not found"):
        loopback.stranger.call(send_with_volume, repo, "wheels")
