"""POST /api/validate-yaml: the front matter of a README.md. A choice of the Hub's rules, those that are documented."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.hub_server.access import body_of

FRONT_MATTER = re.compile(r"\A\s*---\r?\n(.*?)\r?\n?---\s*?(?:\r?\n|\Z)", re.DOTALL)
REPO_ID = re.compile(r"(?!-|\.)(?:[\w.-]+/)?[\w.-]{1,96}(?<!-|\.)", re.ASCII)
LICENSES = {"apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", "cc-by-sa-4.0", "cc0-1.0", "gpl-3.0", "gemma", "other", "unknown"}
LICENSES |= {"llama3", "llama3.1", "llama3.2", "openrail", "qwen", "qwen-research", "unlicense"}
COLORS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
SDKS = {"gradio", "docker", "static", "streamlit"}


def many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def faults_of_ids(metadata: dict[str, Any]) -> Iterator[str]:
    for key in ("base_model", "datasets", "models", "new_version"):
        for value in many(metadata.get(key, [])):
            if not (isinstance(value, str) and REPO_ID.fullmatch(value)):
                yield f'"{key}" with value "{value}" is not valid. Use a model id from https://hf.co/models.'


def faults_of_results(index: Any) -> Iterator[str]:
    """Those of a `model-index`."""
    if not isinstance(index, list) or not all(isinstance(entry, dict) and entry.get("name") for entry in index):
        yield '"model-index" must be an array of objects with a "name"'
        return
    for result in (result for entry in index for result in entry.get("results", [])):
        for part, keys in (("task", ("type",)), ("dataset", ("type", "name"))):
            missing = [key for key in keys if not result.get(part, {}).get(key)]
            yield from (f'"model-index[0].results[0].{part}.{key}" is required' for key in missing)
        for metric in result.get("metrics") or [{}]:
            if not metric.get("type") or metric.get("value") is None:
                yield '"model-index[0].results[0].metrics[0]" needs a "type" and a "value"'
            elif isinstance(metric["value"], float) and not math.isfinite(metric["value"]):
                yield '"model-index[0].results[0].metrics[0].value" must be finite'


def faults_of_space(metadata: dict[str, Any]) -> Iterator[str]:
    if metadata.get("sdk") not in SDKS:
        yield f'"sdk" must be one of [{", ".join(sorted(SDKS))}]'
    for key in ("colorFrom", "colorTo"):
        if metadata.get(key, "red") not in COLORS:
            yield f'"{key}" must be one of [{", ".join(sorted(COLORS))}]'
    if len(str(metadata.get("short_description", ""))) > 60:
        yield '"short_description" length must be less than or equal to 60 characters long'


def faults_of(kind: str, metadata: Any) -> Iterator[str]:
    if not isinstance(metadata, dict):
        yield "metadata must be a YAML mapping"
        return
    for name in many(metadata.get("license", [])):
        if name not in LICENSES:
            yield f'"license" must be one of [{", ".join(sorted(LICENSES))}]'
    for key in ("tags", "task_categories", "language"):
        if not all(isinstance(value, str) for value in many(metadata.get(key, []))):
            yield f'"{key}" must be a string or an array of strings'
    yield from faults_of_ids(metadata)
    if "model-index" in metadata:
        yield from faults_of_results(metadata["model-index"])
    if kind == "space":
        yield from faults_of_space(metadata)


def check_card(kind: str, content: str) -> tuple[list[str], list[str]]:
    """What is wrong with a card, and what is only doubtful about it.

    >>> check_card("model", "---\\nlicense: nope\\n---\\n# A card")[0][0][:35]
    '"license" must be one of [apache-2.'
    """
    match = FRONT_MATTER.match(content)
    if match is None:
        return [], ["empty or missing yaml metadata in repo card"]
    try:
        return list(faults_of(kind, yaml.safe_load(match[1]) or {})), []
    except yaml.YAMLError as error:
        return [f"YAML metadata could not be parsed: {str(error).splitlines()[0]}"], []


def metadata_of(content: str) -> dict[str, Any]:
    """The front matter of a card that has been accepted."""
    match = FRONT_MATTER.match(content)
    return (yaml.safe_load(match[1]) or {}) if match else {}


async def validate(request: Request) -> Response:
    body = await body_of(request)
    errors, warnings = check_card(body.get("repoType", "model"), body["content"])
    answer = {
        "errors": [{"message": message} for message in errors],
        "warnings": [{"message": message} for message in warnings],
    }
    return JSONResponse(answer, 400 if errors else 200)


routes = [Route("/api/validate-yaml", validate, methods=["POST"])]
