"""Jobs: every request is checked, and what runs a job is chosen by the test.

A request is refused where the Hub's documentation, or the client's, gives a reason: an unknown field or flavor, a volume that
is not there, a path that is not absolute; and where ours does: a token that is not a secret.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.hub_server.access import body_of, caller, hub_of, lookup, parameter, writer
from tests.hub_server.store import Hub, HubError, Token, now

HARDWARE = [
    {
        "name": "cpu-basic",
        "prettyName": "CPU Basic",
        "cpu": "2 vCPU",
        "ram": "16 GB",
        "ephemeralStorage": "50 GB",
        "accelerator": None,
        "unitCostMicroUSD": 200,
        "unitCostUSD": 0.0002,
        "unitLabel": "minute",
    },
    *(
        {
            "name": name,
            "prettyName": f"{count}x Nvidia A10G - large",
            "cpu": f"{12 * count} vCPU",
            "ram": f"{46 * count} GB",
            "ephemeralStorage": "200 GB",
            "accelerator": {
                "type": "gpu",
                "model": "A10G",
                "quantity": str(count),
                "vram": f"{24 * count} GB",
                "manufacturer": "Nvidia",
            },
            "unitCostMicroUSD": 25000 * count,
            "unitCostUSD": 0.025 * count,
            "unitLabel": "minute",
        }
        for name, count in (("a10g-large", 1), ("a10g-largex4", 4))
    ),
]
"""In the shape of the Hub's answer; prices are of this test, and any test may change them."""

REQUIRED = {"command": list, "arguments": list, "environment": dict, "flavor": str}
OPTIONAL = {
    **{"secrets": dict, "timeoutSeconds": int, "attempts": int, "labels": dict, "volumes": list},
    **{"dockerImage": str, "spaceId": str},
}
VOLUME = {"type", "source", "mountPath", "revision", "readOnly", "path"}
ENDED = ("COMPLETED", "CANCELED", "ERROR", "DELETED")


@dataclass(kw_only=True)
class Job:
    """A job that was accepted."""

    id: str
    owner: str
    spec: dict[str, Any]
    stage: str = "SCHEDULING"
    message: str | None = None
    lines: list[str] = field(default_factory=list)
    """Its log."""
    attempts: int = 0
    """How often it was started."""
    created: str = field(default_factory=now)
    began: float = 0.0
    seconds: float = 0.0

    @property
    def environment(self) -> dict[str, str]:
        """What its processes see, secrets among it."""
        return {**self.spec["environment"], **self.spec.get("secrets", {}), "JOB_ID": self.id}

    def described(self) -> dict[str, Any]:
        """As the Hub shows it: of secrets the names alone."""
        spec = self.spec
        running = self.seconds or (time.monotonic() - self.began if self.began else None)
        return {
            "id": self.id,
            "createdAt": self.created,
            "owner": {"id": self.owner, "name": self.owner, "type": "user"},
            **{name: spec[name] for name in ("command", "arguments", "environment", "flavor")},
            **{name: spec.get(name) for name in ("dockerImage", "spaceId", "labels", "volumes")},
            "secrets": dict.fromkeys(spec.get("secrets", {})),
            "retry": spec.get("attempts", 1) - 1,
            "status": {"stage": self.stage, "message": self.message},
            "durations": {"schedulingSecs": 0, "runningSecs": None if running is None else round(running), "totalSecs": None},
        }


def machines(hub: Hub) -> list[dict[str, Any]]:
    """What the Hub offers."""
    return hub.hardware or HARDWARE


Runner = Callable[[Job], int]
"""Runs an attempt of a job, adds to its log, and returns the exit status."""


def refused(spec: dict[str, Any], hub: Hub, token: Token) -> str:
    """Why the Hub refuses a job; empty if it does not."""
    kinds = REQUIRED | OPTIONAL
    if wrong := [name for name, value in spec.items() if name not in kinds or not isinstance(value, kinds[name])]:
        return f"{wrong[0]}: unknown, or of another type"
    if missing := REQUIRED.keys() - spec.keys():
        return f"{min(missing)} is missing"
    if ("dockerImage" in spec) == ("spaceId" in spec):
        return "expected either a Docker image or a Space"
    if spec["flavor"] not in [machine["name"] for machine in machines(hub)]:
        return f"unknown flavor {spec['flavor']}"
    texts = [*spec["command"], *spec["arguments"], *spec["environment"].values(), *spec.get("secrets", {}).values()]
    if not spec["command"] or not all(isinstance(text, str) for text in texts):
        return "expected texts"
    if not all(re.fullmatch(r"[A-Za-z_]\w*", name) for part in ("environment", "secrets") for name in spec.get(part, {})):
        return "expected names of variables"
    clear = json.dumps({name: value for name, value in spec.items() if name != "secrets"})
    if any(secret in clear for secret in (*hub.tokens, *spec.get("secrets", {}).values())):
        return "a secret is readable"
    if not spec.get("timeoutSeconds", 1800) >= 1 or not 1 <= spec.get("attempts", 1) <= 10:
        return "expected a positive time limit and one to ten attempts"
    if any(not re.fullmatch(r"[\w.-]*", str(value)) for value in spec.get("labels", {}).values()):
        return "labels have letters, digits, '.', '_' and '-'"
    return next(filter(None, (unmountable(volume, hub, token) for volume in spec.get("volumes", []))), "")


def unmountable(volume: dict[str, Any], hub: Hub, token: Token) -> str:
    """Why a volume cannot be mounted; empty if it can."""
    if volume.keys() - VOLUME or not {"type", "source", "mountPath"} <= volume.keys():
        return "a volume has unknown fields, or lacks one"
    if not re.fullmatch(r"/[\w.-]+(/[\w.-]+)*", volume["mountPath"]):
        return f"{volume['mountPath']} is not an absolute path"
    try:
        files = lookup(hub, token, volume["type"], volume["source"]).find(volume.get("revision", "main")).files
    except HubError as error:
        return str(error)
    return "" if any(path.startswith(f"{volume.get('path', '')}/".lstrip("/")) for path in files) else "no such folder to mount"


def mounted(job: Job, hub: Hub) -> dict[str, bytes]:
    """Path → content of all that a job's volumes show."""
    shown = {}
    for volume in job.spec.get("volumes", []):
        below = f"{volume.get('path', '')}/".lstrip("/")
        files = hub.repositories[volume["type"], volume["source"]].find(volume.get("revision", "main")).files
        shown |= {
            f"{volume['mountPath']}/{path.removeprefix(below)}": blob.content
            for path, blob in files.items()
            if path.startswith(below)
        }
    return shown


def run(job: Job, runner: Runner) -> None:
    """Starts a job until it succeeds or its attempts are used up."""
    job.stage, job.began = "RUNNING", time.monotonic()
    job.lines.append(f"===== Job started at {now()} =====")
    code = 1
    while code and job.attempts < job.spec.get("attempts", 1) and job.stage == "RUNNING":
        job.attempts += 1
        code = runner(job)
    job.seconds = time.monotonic() - job.began
    if job.stage == "RUNNING":
        job.stage, job.message = ("COMPLETED", None) if code == 0 else ("ERROR", f"Job failed with exit code: {code}")


def owner_of(request: Request) -> str:
    """The namespace of a path, which must be the caller's own."""
    namespace = parameter(request, "namespace")
    if writer(request).user != namespace:
        raise HubError(403, f"You don't have permission to manage jobs of {namespace}")
    return namespace


def job_of(request: Request) -> Job:
    owner = owner_of(request)
    job = hub_of(request).jobs.get(parameter(request, "job"))
    if job is None or job.owner != owner:
        raise HubError(404, "Job not found")
    return job


async def hardware(request: Request) -> Response:
    caller(request)
    return JSONResponse(machines(hub_of(request)))


async def create(request: Request) -> Response:
    owner, spec, hub = owner_of(request), await body_of(request), hub_of(request)
    if why := refused(spec, hub, writer(request)):
        raise HubError(400, f"Invalid job: {why}")
    job = Job(id=f"{len(hub.jobs) + 1:024x}", owner=owner, spec=spec)
    hub.jobs[job.id] = job
    if hub.runner:
        threading.Thread(target=run, args=(job, hub.runner), daemon=True).start()
    return JSONResponse(job.described())


async def show(request: Request) -> Response:
    return JSONResponse(job_of(request).described())


async def cancel(request: Request) -> Response:
    job_of(request).stage = "CANCELED"
    return JSONResponse({})


async def logs(request: Request) -> Response:
    """Server-sent events, one for each line, until the job has ended."""
    job = job_of(request)

    async def events() -> AsyncIterator[str]:
        sent = 0
        while True:
            ended, there = job.stage in ENDED, len(job.lines)
            for line in job.lines[sent:there]:
                yield f"data: {json.dumps({'data': line, 'timestamp': now()})}\n\n"
            sent = there
            if ended:
                return
            await asyncio.sleep(0.02)

    return StreamingResponse(events(), media_type="text/event-stream")


routes = [
    Route("/api/jobs/hardware", hardware),
    Route("/api/jobs/{namespace}", create, methods=["POST"]),
    Route("/api/jobs/{namespace}/{job}", show),
    Route("/api/jobs/{namespace}/{job}/logs", logs),
    Route("/api/jobs/{namespace}/{job}/cancel", cancel, methods=["POST"]),
]
