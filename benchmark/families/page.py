"""The page of all families, from the measured rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_INTRO = """# Every family of causal language models

Each model type of transformers {transformers} that is a causal language model of text alone, as a tiny random model with its real
pattern of layers (windows shorter than the prompt, convolutions, state spaces, experts). `python -m benchmark.families` measures
all of them and writes this page; a test fails when a row is no longer true.

| {total} families | |
|---|---|
| act by the fast engine | {fast} |
| act by the plain engine | {plain} |
| of these, without a cache, because theirs is inexact or cannot be copied | {uncached} |
| train with LoRA on all linear layers | {trained} |
| refused | {refused} |

- **acting** and **training**: largest difference of a log-probability to one uncached forward pass of each sequence, in nats, in
  float32.
- **gradient**: largest difference of LoRA's gradient, relative to its largest entry.
- **LoRA on**: the layers that PEFT's `all-linear` adapts, and the parameters of experts and routers that it counts among them.

"""

_TABLE = """| family | engine | acting | training | gradient | LoRA on |
|---|---|---|---|---|---|
"""


def page(content: Mapping[str, Any]) -> str:
    """The page, as Markdown.

    Args:
        content: what `families.json` holds.
    """
    rows: Mapping[str, Mapping[str, Any]] = content["families"]
    engines = [row.get("engine") for row in rows.values()]
    intro = _INTRO.format(
        transformers=content["transformers"],
        total=len(rows),
        fast=engines.count("fast"),
        plain=engines.count("plain"),
        uncached=sum(row.get("cached") is False for row in rows.values()),
        trained=sum("gradient" in row for row in rows.values()),
        refused=sum("refused" in row for row in rows.values()),
    )
    acting = [_row(family, row) for family, row in rows.items() if "refused" not in row]
    refused = [f"- `{family}`: {_plain(row['refused'])}" for family, row in rows.items() if "refused" in row]
    table = _TABLE + "\n".join(acting)
    return f"{intro}## Families\n\n{table}\n\n## Refused\n\n" + "\n".join(refused) + "\n"


def _row(family: str, row: Mapping[str, Any]) -> str:
    engine = row["engine"] + (", uncached" if row.get("cached") is False else "")
    if "not_trained" in row:
        return f"| `{family}` | {engine} | {row['acting']:.0e} | no: {_plain(row['not_trained'])} | | |"
    names = ", ".join(f"`{name}`" for name in row["lora"])
    return f"| `{family}` | {engine} | {row['acting']:.0e} | {row['training']:.0e} | {row['gradient']:.0e} | {names} |"


def _plain(reason: str) -> str:
    """A reason without what would end a cell of a table."""
    return reason.replace("|", "/").replace("<", "").replace(">", "")
