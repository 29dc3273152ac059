"""Rules for cards that can be checked offline. The client checks almost nothing, and the Hub only after an upload."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]

from msgrpo_hub.errors import UserError
from msgrpo_hub.hub.repo_files import local_path

_LICENSE_IDS = """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m afl-3.0
    artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0
    cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0
    cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0
    epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc h-research
    intel-research lppl-1.3c ms-pl apple-ascl apple-amlr mpl-2.0 odc-by odbl openrail++ openmdw-1.0 osl-3.0 postgresql ofl-1.1
    ncsa unlicense zlib pddl lgpl-lr deepfloyd-if-license fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2
    llama3.3 llama4 grok2-community gemma unknown other
"""
LICENSES = frozenset(_LICENSE_IDS.split())
"""Values of `license` that the Hub's documentation lists."""


def split_card(content: str) -> tuple[dict[str, Any], str]:
    """The front matter of a card and its text. Raises `UserError` if the front matter is missing or not a mapping.

    >>> split_card("---\\nlicense: mit\\n---\\n# A card")
    ({'license': 'mit'}, '# A card')
    """
    match = re.match(r"---\n(.*?)\n---\n", content, re.DOTALL)
    try:
        metadata = yaml.safe_load(match[1]) if match else None
    except yaml.YAMLError as error:
        raise UserError(f"the card is not pushed: its front matter is not valid YAML ({' '.join(str(error).split())})") from error
    if match is None or not isinstance(metadata, dict):
        raise UserError("the card is not pushed: expected front matter, a YAML mapping between two lines of ---")
    return metadata, content[match.end() :]


def check_card(content: str) -> None:
    """Refuses a card that the Hub would refuse, or that contains a path of this machine.

    Raises:
        UserError: one line that lists every fault.

    >>> check_card("---\\nlicense: my-own\\n---\\n# A card")
    Traceback (most recent call last):
    msgrpo_hub.errors.UserError: the card is not pushed: license 'my-own' is not in the Hub's list
    """
    metadata, _ = split_card(content)
    path = local_path(content.encode())
    if faults := [*_faults(metadata), *([f"it has a path of this machine ({path}…)"] if path else [])]:
        raise UserError(f"the card is not pushed: {'; '.join(faults)}")


def _faults(metadata: Mapping[str, Any]) -> Iterator[str]:
    license_id = metadata.get("license")
    if license_id is not None and license_id not in LICENSES:
        yield f"license {license_id!r} is not in the Hub's list"
    if license_id == "other" and not metadata.get("license_name"):
        yield "license 'other' needs a license_name"
    for key in ("base_model", "datasets"):
        for value in _many(metadata.get(key)):
            if not (isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", value, re.ASCII)):
                yield f"{key} {value!r} is not a repository"
    for key in ("tags", "language"):
        if not all(isinstance(value, str) for value in _many(metadata.get(key))):
            yield f"{key} must be strings"
    for model in _many(metadata.get("model-index")):
        if not model.get("name"):
            yield "model-index has no name"
        for result in model.get("results") or []:
            yield from _faults_of_result(result)


def _faults_of_result(result: Mapping[str, Any]) -> Iterator[str]:
    for part, keys in (("task", ("type",)), ("dataset", ("type", "name"))):
        yield from (f"model-index: {part}.{key} is missing" for key in keys if not (result.get(part) or {}).get(key))
    for metric in result.get("metrics") or [{}]:
        value = metric.get("value")
        if not metric.get("type"):
            yield "model-index: a metric has no type"
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            yield f"model-index: {metric.get('type')} = {value!r} is not a finite number"


def _many(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]
