"""Settings of a Space: secrets, variables, hardware, pause and restart. No Space runs here."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.hub_server.access import body_of, on_repository, readable, writable
from tests.hub_server.store import HubError, Repository, now


def entry(value: dict[str, Any]) -> dict[str, Any]:
    return {"value": value["value"], "description": value.get("description"), "updatedAt": now()}


def settings_at_creation(body: dict[str, Any]) -> dict[str, Any]:
    """What the body of a create call says about a Space."""
    hardware = body.get("hardware", "cpu-basic")
    runtime = {"stage": "NO_APP_FILE", "hardware": {"current": None, "requested": hardware}, "storage": None}
    return {
        "sdk": body["sdk"],
        "secrets": {value["key"]: entry(value) for value in body.get("secrets", [])},
        "variables": {value["key"]: entry(value) for value in body.get("variables", [])},
        "runtime": runtime | {"gcTimeout": body.get("sleepTimeSeconds", 172800)},
    }


def space(repository: Repository) -> dict[str, Any]:
    if repository.kind != "space":
        raise HubError(404, "only Spaces have these settings")
    return repository.space


async def runtime(request: Request) -> Response:
    return JSONResponse(space(readable(request))["runtime"])


async def hardware(request: Request) -> Response:
    state, body = space(writable(request))["runtime"], await body_of(request)
    state["hardware"]["requested"] = body["flavor"]
    state["gcTimeout"] = body.get("sleepTimeSeconds", state["gcTimeout"])
    return JSONResponse(state)


routes = [on_repository("/runtime", runtime), on_repository("/hardware", hardware, "POST")]
