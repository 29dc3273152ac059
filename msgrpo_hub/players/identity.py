"""Identities: the player of a name, with everything that determines its replies, pinned to commits.

A Hub id is resolved to its current commit and loaded at that commit; base and adapter each have a revision. A folder is
identified by the hash of its weights. Results stored by name alone would mix those of different models.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from msgrpo_hub.agent.policy import Policy
from msgrpo_hub.agent.prompt_formats import PromptFormat, find_format
from msgrpo_hub.downloads.hashes import content_hash
from msgrpo_hub.downloads.play_settings import Scalar, check_switches
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.load_options import LoadOptions
from msgrpo_hub.players.registry import SCRIPTED, ExpectedPrompts, check_near_miss, entry_point, make_player

Mode = Literal["generate", "score"]
"""`generate`: the reply is sampled (greedy at temperature 0); `score`: the legal action of highest log-probability."""

VERSION = 1
"""Version of the scripted players, raised when one of them changes how it plays."""


@dataclass(frozen=True, kw_only=True)
class PlayerSettings(LoadOptions):
    """How models act. Scripted players ignore these settings."""

    mode: Mode = "generate"
    """How a model acts: `generate` samples a reply, `score` takes the legal action of highest log-probability."""
    temperature: float = 0.5
    """Sampling temperature; 0 is greedy."""
    max_new_tokens: int = 256
    """Largest length of a reply, in tokens."""
    chat_template: str = ""
    """File with a Jinja chat template, for a model without one."""
    prompt_format: str = ""
    """The prompt format, built-in or module:object; if empty, the adapter's own, else the suite's."""
    chat_template_kwargs: dict[str, Scalar] = field(default_factory=dict)
    """Variables of the chat template as JSON, such as {"enable_thinking": false}; an adapter has its own."""
    top_k: int = 0
    """Sample from this many of the most likely tokens; 0 is all."""
    top_p: float = 1.0
    """Sample from the most likely tokens that together have this probability; 1 is all."""
    use_generation_config: bool = False
    """Take temperature, top-k and top-p from the model's own generation_config.json, as `model.generate()` does."""
    concurrency: int = 8
    """Requests to a server at the same time, at most as many as episodes in a batch; it decides no reply."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_switches(self.chat_template_kwargs, "in chat_template_kwargs")
        if self.use_generation_config and (self.top_k or self.top_p != 1):
            raise UserError(
                "top_k and top_p are given along with use_generation_config, which sets them: expected one or the other"
            )

    @property
    def chosen_format(self) -> PromptFormat | None:
        """The prompt format that the user chose, if any. Raises `UserError` if it cannot be used."""
        return find_format(self.prompt_format, may_import=True) if self.prompt_format else None


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


def _endpoint(name: str, settings: PlayerSettings) -> Player:
    if settings.mode == "score":
        raise UserError(f"{name!r} is behind a server, which cannot score given replies: use --mode generate")
    if settings.use_generation_config:
        raise UserError(f"{name!r} is behind a server, whose files cannot be read: use --temperature, --top-k and --top-p")
    policy = make_player(
        name,
        temperature=settings.temperature,
        max_new_tokens=settings.max_new_tokens,
        concurrency=settings.concurrency,
        chat_template_kwargs=settings.chat_template_kwargs,
        top_k=settings.top_k,
        top_p=settings.top_p,
    )
    identity = {
        "kind": "endpoint",
        "server": name,
        "temperature": settings.temperature,
        "max_new_tokens": settings.max_new_tokens,
        **_besides(settings.chat_template_kwargs, settings.top_k, settings.top_p),
        "huggingface_hub": importlib.metadata.version("huggingface_hub"),
    }
    return Player(name=name, policy=policy, identity=identity, folder=f"{_folder_name(name)}/unpinned")


def _language_model(name: str, settings: PlayerSettings, expected_prompts: ExpectedPrompts | None) -> Player:
    from msgrpo_hub.downloads.names import named, public_name
    from msgrpo_hub.downloads.sources import resolve
    from msgrpo_hub.models.adapter_check import adapter_effect, probe_prompt

    check_near_miss(name)
    sources = resolve(name)
    policy: Any = make_player(
        sources.pinned,
        temperature=settings.temperature,
        max_new_tokens=settings.max_new_tokens,
        chat_template=settings.chat_template or None,
        prompt_format=settings.chosen_format,
        expected_prompts=expected_prompts,
        load=settings,
        chat_template_kwargs=settings.chat_template_kwargs,
        top_k=settings.top_k,
        top_p=settings.top_p,
        use_generation_config=settings.use_generation_config,
    )
    policy.name = name  # for error messages; the pinned source may be a local path
    if sources.adapter and adapter_effect(policy) == 0:
        raise UserError(
            f"the adapter {sources.adapter!r} does not change its base: both give the same output after a probe prompt"
        )
    sampled = settings.mode == "generate"
    prompts = expected_prompts(policy.prompt_format) if expected_prompts else [probe_prompt(policy)]
    identity = {
        "kind": "language model",
        **sources.identity(),
        "mode": settings.mode,
        "temperature": policy.temperature if sampled else None,
        "max_new_tokens": settings.max_new_tokens if sampled else None,
        "chat_template": hashlib.sha256(json.dumps(policy.tokenizer.chat_template).encode()).hexdigest()[:16],
        "dtype": str(policy.model.dtype).removeprefix("torch."),
        "device": policy.model.device.type,
        "engine": policy.chosen_engine(prompts),
        **{package: importlib.metadata.version(package) for package in ("torch", "transformers", "peft")},
        **_loaded(settings),
        **_besides(policy.chat_template_kwargs, *((policy.top_k, policy.top_p) if sampled else (0, 1))),
    }
    if settings.mode == "score":
        from msgrpo_hub.models.scoring import ScorePolicy

        policy = ScorePolicy(policy)
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
    short = "/".join(last) if path.exists() or path.is_absolute() else name
    return "".join(c if c.isalnum() or c in "-_.+" else "__" if c == "/" else "-" for c in short).strip("-.") or "player"
