"""Identities: the player of a name, with everything that determines its replies, pinned to commits.

A Hub id is resolved to its current commit and loaded at that commit; base and adapter each have a revision. A folder is
identified by the hash of its weights. Results stored by name alone would mix those of different models.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgrpo_hub.agent.policy import Policy
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.downloads.inspection import Scalar
from msgrpo_hub.downloads.names import content_hash, exists
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.load_options import LoadOptions
from msgrpo_hub.players.registry import SCRIPTED, ExpectedPrompts, check_near_miss, entry_point, make_player
from msgrpo_hub.players.settings import PlayerSettings

VERSION = 1
"""Version of the scripted players, raised when one of them changes how it plays."""


@dataclass(frozen=True, kw_only=True)
class Player:
    """A policy with its name and identity."""

    name: str
    """The name in results: the given name, or the last part of a folder's path."""
    policy: Policy
    identity: dict[str, Any]
    """Everything that determines its replies, as plain data: part of the run hash."""
    folder: str
    """`<org>__<model>/<commit>`, where its results go."""
    prompt_format: PromptFormat | None = None
    """The prompt format chosen for it; None means the policy's own, else the suite's."""
    batched: bool = False
    """Whether it computes the replies of a batch together, so that the batch decides how they are rounded."""


def identify(name: str, settings: PlayerSettings, expected_prompts: ExpectedPrompts | None = None) -> Player:
    """The player of a name, loaded and pinned to commits. Arguments and errors as for `make_player`."""
    player = _identified(name, settings, expected_prompts)
    return replace(player, prompt_format=settings.chosen_format) if settings.prompt_format else player


def _identified(name: str, settings: PlayerSettings, expected_prompts: ExpectedPrompts | None) -> Player:
    if name in SCRIPTED:
        return _simple(name, make_player(name), {"kind": "scripted", "player": name, "version": VERSION})
    kind, separator, rest = name.partition(":")
    if separator and kind in ("endpoint", "provider"):
        return _endpoint(name, settings)
    if separator and kind == "dqn":
        display_name = f"dqn:{Path(rest).name}" if Path(rest).is_absolute() else name
        return _simple(display_name, make_player(name), {"kind": "dqn", "weights": content_hash(Path(rest))})
    if point := entry_point(name):
        package = point.dist.name if point.dist else ""
        version = point.dist.version if point.dist else ""
        identity = {"kind": "entry point", "player": name, "package": package, "version": version}
        return replace(_simple(name, make_player(name), identity), batched=True)  # it may compute its replies together
    return _language_model(name, settings, expected_prompts)


def _simple(name: str, policy: Policy, identity: dict[str, Any]) -> Player:
    return Player(name=name, policy=policy, identity=identity, folder=f"{_folder_name(name)}/v{identity.get('version', 1)}")


def _endpoint(given: str, settings: PlayerSettings) -> Player:
    policy: Any = make_player(given, settings)
    name = policy.server.name  # without the secrets of the URL
    identity = {
        "kind": "endpoint",
        "server": name,
        "temperature": settings.temperature,
        "max_new_tokens": settings.max_new_tokens,
        **_besides(settings.chat_template_kwargs, settings.top_k, settings.top_p),
        **({"extra_body": settings.extra_body} if settings.extra_body else {}),
    }
    return Player(name=name, policy=policy, identity=identity, folder=f"{_folder_name(name)}/unpinned")


def settled(player: Player) -> Player:
    """The player, with what its server refuses in its identity. The first call asks the server; other players are as they were.

    Raises:
        UserError: the server refuses the key, the model or the settings.
    """
    refused: list[str] = getattr(player.policy, "refusals", list)()  # only a policy behind a server has them
    return replace(player, identity=player.identity | ({"refused": refused} if refused else {}))


def _language_model(name: str, settings: PlayerSettings, expected_prompts: ExpectedPrompts | None) -> Player:
    from msgrpo_hub.downloads.fetching import resolve
    from msgrpo_hub.downloads.names import named, public_name
    from msgrpo_hub.models.adapter_check import adapter_effect, probe_prompt

    check_near_miss(name)
    sources = resolve(name)
    policy: Any = make_player(sources.pinned, settings, expected_prompts)
    model = getattr(policy, "language_model", policy)  # a policy that scores has one
    model.name = name  # for error messages; the pinned source may be a local path
    if sources.adapter and adapter_effect(model) == 0:
        raise UserError(
            f"the adapter {sources.adapter!r} does not change its base: both give the same output after a probe prompt"
        )
    sampled = settings.mode == "generate"
    prompts = expected_prompts(model.prompt_format) if expected_prompts else [probe_prompt(model)]
    identity = {
        "kind": "language model",
        **sources.identity(),
        "mode": settings.mode,
        "temperature": model.temperature if sampled else None,
        "max_new_tokens": settings.max_new_tokens if sampled else None,
        "chat_template": hashlib.sha256(json.dumps(model.tokenizer.chat_template).encode()).hexdigest()[:16],
        "dtype": str(model.model.dtype).removeprefix("torch."),
        "device": model.model.device.type,
        "engine": model.chosen_engine(prompts),
        **{package: importlib.metadata.version(package) for package in ("torch", "transformers", "peft")},
        **_loaded(settings),
        **_besides(model.chat_template_kwargs, *((model.top_k, model.top_p) if sampled else (0, 1))),
    }
    folder = "+".join(_folder_name(source) for source, _ in named(name))
    display_name = "+".join(public_name(source) + (f"@{revision}" if revision else "") for source, revision in named(name))
    return Player(name=display_name, policy=policy, identity=identity, folder=f"{folder}/{sources.commits}", batched=True)


def _besides(chat_template_kwargs: Mapping[str, Scalar], top_k: int, top_p: float) -> dict[str, Any]:
    """The settings that differ from their defaults. The others are left out, so that the hashes of earlier runs stay."""
    switches = {f"chat_template_kwargs.{name}": value for name, value in chat_template_kwargs.items()}
    return switches | ({"top_k": top_k} if top_k else {}) | ({"top_p": top_p} if top_p != 1 else {})


def _loaded(load: LoadOptions) -> dict[str, Any]:
    """How the weights were loaded, where it is not the default; device and type are part of every identity."""
    four_bits = {"quantization": "nf4", "bitsandbytes": importlib.metadata.version("bitsandbytes")} if load.load_in_4bit else {}
    return four_bits | ({"device_map": load.device_map} if load.device_map != "none" else {})


def _folder_name(name: str) -> str:
    """A name as one folder name: `org/model` becomes `org__model`, and a path is reduced to its last two parts."""
    path = Path(name)
    last = path.parts[-2:] if path.name.strip(".") else path.resolve().parts[-1:]
    short = "/".join(last) if exists(path) or path.is_absolute() else name
    return "".join(c if c.isalnum() or c in "-_.+" else "__" if c == "/" else "-" for c in short).strip("-.") or "player"
