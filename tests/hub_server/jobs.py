"""Jobs: every request is checked, and the test chooses what runs a job."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import StreamingResponse

from tests.hub_server.routing import Ask, route
from tests.hub_server.store import USERS, HubError, now


def machine(name: str, gpus: int, cpus: int, memory: int, dollars: float) -> dict[str, Any]:
    """A machine in the format of the Hub; the price is invented."""
    sizes = {"cpu": f"{cpus} vCPU", "ram": f"{memory} GB", "ephemeralStorage": "50 GB"}
    gpu = {"type": "gpu", "model": "A10G", "quantity": str(gpus), "vram": f"{24 * gpus} GB", "manufacturer": "Nvidia"}
    price = {"unitCostMicroUSD": round(1e6 * dollars), "unitCostUSD": dollars, "unitLabel": "minute"}
    return {"name": name, "prettyName": name, "accelerator": gpu if gpus else None, **sizes, **price}


HARDWARE = [
    machine("cpu-basic", 0, 2, 16, 0.0002),
    machine("a10g-large", 1, 12, 46, 0.025),
    machine("a10g-largex4", 4, 48, 184, 0.1),
]
FIELDS = {
    **{"command": list, "arguments": list, "environment": dict, "flavor": str, "dockerImage": str, "secrets": dict},
    **{"timeoutSeconds": int, "attempts": int, "labels": dict, "volumes": list},
}


@dataclass(kw_only=True)
class Job:
    id: str
    owner: str
    spec: dict[str, Any]
    stage: str = "SCHEDULING"
    message: str | None = None
    lines: list[str] = field(default_factory=list)
    attempts: int = 0
    created: str = field(default_factory=now)
    seconds: float = 0.0

    @property
    def environment(self) -> dict[str, str]:
        return {**self.spec["environment"], **self.spec.get("secrets", {}), "JOB_ID": self.id}

    def described(self) -> dict[str, Any]:
        """In the format of the Hub, with only the names of secrets."""
        shown = {name: self.spec.get(name) for name in FIELDS.keys() - {"secrets", "attempts", "timeoutSeconds"}}
        return shown | {
            "id": self.id,
            "createdAt": self.created,
            "owner": {"id": self.owner, "name": self.owner, "type": "user"},
            "secrets": dict.fromkeys(self.spec.get("secrets", {})),
            "status": {"stage": self.stage, "message": self.message},
            "durations": {"schedulingSecs": 0, "runningSecs": round(self.seconds), "totalSecs": None},
        }


Runner = Callable[[Job], int]
"""Runs one attempt of a job, adds to its log, and returns the exit status."""


def problem(ask: Ask, spec: dict[str, Any]) -> str:
    """Why the Hub, or this test of secrets, refuses a job; empty if nothing is wrong."""
    if wrong := [name for name, value in spec.items() if not isinstance(value, FIELDS.get(name, ()))]:
        return f"{wrong[0]} is unknown or has another type"
    if spec["flavor"] not in [one["name"] for one in HARDWARE]:
        return f"unknown flavor {spec['flavor']}"
    clear = json.dumps(spec | {"secrets": None})
    if any(secret in clear for secret in (*USERS, *spec["secrets"].values())):
        return "a secret is readable"
    for volume in spec.get("volumes", ()):
        repository = ask.hub.repositories.get((volume["type"], volume["source"]))
        owned = repository and repository.owner == ask.user and volume["mountPath"].startswith("/")
        if not owned or not any(path.startswith(f"{volume['path']}/") for path in repository.head.files):
            return f"no such folder to mount: {volume}"
    return ""


def run(job: Job, runner: Runner) -> None:
    """Starts a job until it succeeds or its attempts are used up."""
    job.stage, began, code = "RUNNING", time.monotonic(), 1
    while code and job.attempts < job.spec.get("attempts", 1):
        job.attempts += 1
        code = runner(job)
    job.seconds = time.monotonic() - began
    job.stage, job.message = ("ERROR", f"Job failed with exit code: {code}") if code else ("COMPLETED", None)


@route("/api/jobs/hardware")
def hardware(_: Ask) -> Any:
    return HARDWARE


@route("/api/jobs/{namespace}", "POST")
def create(ask: Ask) -> dict[str, Any]:
    ask.check_write()
    if ask.part("namespace") != ask.user:
        raise HubError(403, "You don't have permission to manage these jobs")
    spec = ask.json()
    if why := problem(ask, spec):
        raise HubError(400, f"Invalid job: {why}")
    job = Job(id=f"{len(ask.hub.jobs) + 1:024x}", owner=ask.user, spec=spec)
    ask.hub.jobs[job.id] = job
    if ask.hub.runner:
        threading.Thread(target=run, args=(job, ask.hub.runner), daemon=True).start()
    return job.described()


def job_of(ask: Ask) -> Job:
    job: Job | None = ask.hub.jobs.get(ask.part("job"))
    if job is None or job.owner != ask.user:
        raise HubError(404, "Job not found")
    return job


@route("/api/jobs/{namespace}/{job}")
def show(ask: Ask) -> dict[str, Any]:
    return job_of(ask).described()


@route("/api/jobs/{namespace}/{job}/logs")
def logs(ask: Ask) -> StreamingResponse:
    """Server-sent events, one per line, until the job has ended."""
    job = job_of(ask)

    async def events() -> AsyncIterator[str]:
        sent = 0
        while True:
            ended, there = job.stage in ("COMPLETED", "ERROR"), len(job.lines)
            for line in job.lines[sent:there]:
                yield f"data: {json.dumps({'data': line, 'timestamp': now()})}\n\n"
            sent = there
            if ended:
                return
            await asyncio.sleep(0.02)

    return StreamingResponse(events(), media_type="text/event-stream")
