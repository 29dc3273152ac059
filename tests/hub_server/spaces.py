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


def shown(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """Secrets can be written and never read back."""
    hidden = {"value"} if name == "secrets" else set()
    return {key: {k: v for k, v in value.items() if k not in hidden} for key, value in settings[name].items()}


async def named_values(request: Request) -> Response:
    """Secrets or variables, as the path says: listed, set or deleted."""
    settings, name = space(writable(request)), request.url.path.rpartition("/")[2]
    if request.method != "GET":
        body = await body_of(request)
        settings[name].pop(body["key"], None)
        if request.method == "POST":
            settings[name][body["key"]] = entry(body)
    return JSONResponse(shown(settings, name))


async def hardware(request: Request) -> Response:
    state, body = space(writable(request))["runtime"], await body_of(request)
    state["hardware"]["requested"] = body["flavor"]
    state["gcTimeout"] = body.get("sleepTimeSeconds", state["gcTimeout"])
    return JSONResponse(state)


async def sleep_time(request: Request) -> Response:
    state = space(writable(request))["runtime"]
    state["gcTimeout"] = (await body_of(request))["seconds"]
    return JSONResponse(state)


async def pause(request: Request) -> Response:
    state = space(writable(request))["runtime"]
    state["stage"] = "PAUSED"
    return JSONResponse(state)


async def restart(request: Request) -> Response:
    state = space(writable(request))["runtime"]
    state["stage"] = "BUILDING"
    return JSONResponse(state)


routes = [
    on_repository("/runtime", runtime),
    on_repository("/secrets", named_values, "GET", "POST", "DELETE"),
    on_repository("/variables", named_values, "GET", "POST", "DELETE"),
    on_repository("/hardware", hardware, "POST"),
    on_repository("/sleeptime", sleep_time, "POST"),
    on_repository("/pause", pause, "POST"),
    on_repository("/restart", restart, "POST"),
]
