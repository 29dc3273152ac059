"""POST /api/validate-yaml: the documented rules for the front matter of a README.md."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]
from starlette.responses import JSONResponse

from tests.hub_server.routing import Ask, route

FRONT_MATTER = re.compile(r"\A\s*---\r?\n(.*?)\r?\n?---\s*?(?:\r?\n|\Z)", re.DOTALL)
REPO_ID = re.compile(r"(?!-|\.)(?:[\w.-]+/)?[\w.-]{1,96}(?<!-|\.)", re.ASCII)
LICENSES = {"apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", "gpl-3.0", "gemma", "llama3.2", "other", "unknown"}
SDKS = {"gradio", "docker", "static", "streamlit"}


def front_matter(content: str) -> Any:
    match = FRONT_MATTER.match(content)
    return (yaml.safe_load(match[1]) or {}) if match else {}


def errors_of(kind: str, metadata: Any) -> Iterator[str]:
    if not isinstance(metadata, dict):
        yield "metadata must be a YAML mapping"
        return
    values = {key: value if isinstance(value, list) else [value] for key, value in metadata.items()}
    choices = {"license": LICENSES} | ({"sdk": SDKS} if kind == "space" else {})
    for key, allowed in choices.items():
        if not {*values.get(key, ())} <= allowed:
            yield f'"{key}" must be one of [{", ".join(sorted(allowed))}]'
    for key in ("tags", "task_categories", "language"):
        if not all(isinstance(value, str) for value in values.get(key, ())):
            yield f'"{key}" must be a string or an array of strings'
    for key in ("base_model", "datasets", "models"):
        for value in values.get(key, ()):
            if not (isinstance(value, str) and REPO_ID.fullmatch(value)):
                yield f'"{key}" with value "{value}" is not valid. Use a model id from https://hf.co/models.'
    if kind == "space" and ("sdk" not in metadata or len(str(metadata.get("short_description", ""))) > 60):
        yield '"sdk" is required, and "short_description" has at most 60 characters'
    for entry in values.get("model-index", ()):
        for result in entry["results"] if entry.get("name") else [{}]:
            named = result.get("task", {}).get("type") and all(result.get("dataset", {}).get(key) for key in ("type", "name"))
            metrics = result.get("metrics") or [{}]
            if not named or not all(one.get("type") and math.isfinite(one.get("value", math.nan)) for one in metrics):
                yield '"model-index" must name task, dataset and metrics, with finite values'


def check_card(kind: str, content: str) -> tuple[list[str], list[str]]:
    if not FRONT_MATTER.match(content):
        return [], ["empty or missing yaml metadata in repo card"]
    try:
        return list(errors_of(kind, front_matter(content))), []
    except yaml.YAMLError as error:
        return [f"YAML metadata could not be parsed: {str(error).splitlines()[0]}"], []


@route("/api/validate-yaml", "POST")
def validate(ask: Ask) -> JSONResponse:
    body = ask.json()
    lists = zip(("errors", "warnings"), check_card(body.get("repoType", "model"), body["content"]), strict=True)
    answer = {name: [{"message": message} for message in messages] for name, messages in lists}
    return JSONResponse(answer, 400 if answer["errors"] else 200)
