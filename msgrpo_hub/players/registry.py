"""The kinds of players: a name is parsed once into an object that loads the player and knows its identity.

An identity is everything that determines a player's replies, as plain data, pinned to commits: base and adapter each have a
revision, and a folder is identified by the hash of its weights. Results stored only by name would mix different models.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.metadata
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from msgrpo_hub.agent.policy import Policy, Prompt, ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.downloads.names import (
    POCKET,
    built_in_adapters,
    content_hash,
    exists,
    is_folder,
    public_name,
    split_adapter,
    split_revision,
    without_secrets,
)
from msgrpo_hub.errors import UserError, unknown
from msgrpo_hub.fields import Count, checked, imported, misfit, names_code
from msgrpo_hub.games import Game, base_game
from msgrpo_hub.models.load_options import LoadOptions, ReplyLength, Temperature, TopK, TopP
from msgrpo_hub.players.dqn import load_dqn
from msgrpo_hub.players.scripted import KNOWS as KNOWS
from msgrpo_hub.players.scripted import SCRIPTED as SCRIPTED
from msgrpo_hub.players.settings import Mode, PlayerSettings

VERSION = 1
"""Version of the scripted players, raised when one of them changes how it plays."""

GROUP = "msgrpo_hub.players"
"""The entry point group for players of other packages: the player's name, and a callable that makes its policy."""

OWN: dict[str, Callable[[], Policy]] = {}
"""`module:object` → a callable that makes its policy, for the players that `import_player` imported."""

ExpectedPrompts = Callable[[PromptFormat | None], Sequence[Prompt]]
"""A player's own prompt format, or None → long prompts of the games that it will play."""


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
    """Whether it computes the replies of a batch together, so that the batch affects rounding."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The properties that all players of a kind share."""

    required: tuple[str, ...] = ()
    """The fields of every valid identity; the first one holds the player's name."""
    optional: tuple[str, ...] = ()
    batched: bool = False
    """Whether it computes the replies of a batch together."""
    served: bool = False
    sampled: bool = False


KINDS: dict[str, Kind] = {
    "scripted": Kind(required=("player", "version")),
    "dqn": Kind(required=("weights",)),
    "entry point": Kind(required=("player", "package", "version"), optional=("batch_size",), batched=True),  # it may batch
    "endpoint": Kind(
        required=("server", "temperature", "max_new_tokens"),
        optional=("extra_body", "refused", "top_k", "top_p"),
        served=True,
        sampled=True,
    ),
    "language model": Kind(
        required=(
            *("base", "base_commit", "mode", "temperature", "max_new_tokens", "chat_template", "dtype", "device"),
            *("engine", "torch", "transformers", "peft"),
        ),
        optional=("batch_size", "top_k", "top_p"),
        batched=True,
        sampled=True,
    ),
}
"""The kind in an identity → its properties."""

_VALUES: dict[str, Any] = {
    **{"temperature": Temperature, "max_new_tokens": ReplyLength, "top_k": TopK, "top_p": TopP, "batch_size": Count},
    **{"mode": Mode, "extra_body": dict, "refused": list},
}
"""Field of an identity → its type hint; the others are texts."""


@dataclass(frozen=True)
class _Named:
    """A player by the name that the user gave. Its `policy` has no identity yet; `load` adds it. Arguments as for `identify`."""

    name: str
    kind: str


class CodePlayer(_Named):
    """A player that is no model: one of `SCRIPTED`, `dqn:FOLDER`, or code of others, by entry point or `module:object`."""

    def policy(self, settings: PlayerSettings, expected_prompts: ExpectedPrompts | None = None) -> Policy:  # noqa: ARG002
        if self.kind == "scripted":
            return ScriptedPolicy(SCRIPTED[self.name])
        if self.kind == "dqn":
            return load_dqn(self.name.removeprefix("dqn:"))
        make: Callable[[], Policy] = OWN.get(self.name) or entry_points(group=GROUP)[self.name].load()
        return make()

    def load(self, settings: PlayerSettings, expected_prompts: ExpectedPrompts | None = None) -> Player:
        policy, shown = self.policy(settings, expected_prompts), self.name
        identity: dict[str, Any] = {"kind": self.kind, "player": self.name}
        if self.kind == "scripted":
            identity["version"] = VERSION
        elif self.kind == "dqn":
            folder = Path(self.name.removeprefix("dqn:"))
            identity = {"kind": self.kind, "weights": content_hash(folder)}
            shown = f"dqn:{folder.name}" if folder.is_absolute() else self.name
        elif self.name in OWN:  # the content of its file stands for a version
            module = self.name.partition(":")[0]
            source = Path(str(sys.modules[module].__file__)).read_bytes()
            identity |= {"package": module, "version": hashlib.sha256(source).hexdigest()[:16]}
        else:
            package = entry_points(group=GROUP)[self.name].dist
            identity |= {"package": package.name, "version": package.version} if package else {"package": "", "version": ""}
        results = f"{_folder_name(shown)}/v{identity.get('version', 1)}"
        return Player(name=shown, policy=policy, identity=identity, folder=results, batched=kind_of(identity).batched)


class ServedPlayer(_Named):
    """`endpoint:URL#MODEL` or `provider:NAME/MODEL`: a model behind a server."""

    def policy(self, settings: PlayerSettings, expected_prompts: ExpectedPrompts | None = None) -> Policy:  # noqa: ARG002
        if settings.mode == "score":
            shown = without_secrets(self.name)
            raise UserError(f"{shown!r} is behind a server, which cannot score given replies: use --mode generate")
        from msgrpo_hub.models.endpoint import make_endpoint  # loads the HTTP client only when needed

        extra: dict[str, Any] = {"top_k": settings.top_k} if settings.top_k else {}
        extra |= {"top_p": settings.top_p} if settings.top_p != 1 else {}
        extra |= {"chat_template_kwargs": dict(settings.chat_template_kwargs)} if settings.chat_template_kwargs else {}
        return make_endpoint(
            self.name,
            temperature=settings.temperature,
            max_new_tokens=settings.max_new_tokens,
            concurrency=settings.concurrency,
            extra_body=extra | settings.extra_body,
        )

    def load(self, settings: PlayerSettings, expected_prompts: ExpectedPrompts | None = None) -> Player:
        shown = without_secrets(self.name)
        identity = {
            "kind": self.kind,
            "server": shown,
            "temperature": settings.temperature,
            "max_new_tokens": settings.max_new_tokens,
            **_not_default(settings.chat_template_kwargs, settings.top_k, settings.top_p),
            **({"extra_body": settings.extra_body} if settings.extra_body else {}),
        }
        policy = self.policy(settings, expected_prompts)
        return Player(name=shown, policy=policy, identity=identity, folder=f"{_folder_name(shown)}/unpinned")


class ModelPlayer(_Named):
    """A language model that is loaded here: `pocket`, a built-in adapter, `BASE`, `ADAPTER` or `BASE+ADAPTER`."""

    def policy(
        self, settings: PlayerSettings, expected_prompts: ExpectedPrompts | None = None, pinned: str | None = None
    ) -> Policy:
        """The policy without its identity; `pinned` is the name with the commits of its sources."""
        from msgrpo_hub.models.language_model import LanguageModel  # loads torch only when needed
        from msgrpo_hub.models.scoring import ScorePolicy

        base, adapter = split_adapter(pinned or self.name)
        same = [field.name for field in fields(LoadOptions)]
        same += ["temperature", "max_new_tokens", "chat_template_kwargs", "top_k", "top_p"]
        model = LanguageModel.from_pretrained(
            base,
            adapter or None,
            expected_prompts=expected_prompts,
            prompt_format=settings.chosen_format,
            chat_template=settings.chat_template or None,
            **{name: getattr(settings, name) for name in same},
        )
        model.name = self.name  # for error messages; the pinned source may be a local path
        return model if settings.mode == "generate" else ScorePolicy(model)

    def load(self, settings: PlayerSettings, expected_prompts: ExpectedPrompts | None = None) -> Player:
        from msgrpo_hub.downloads.fetching import resolve
        from msgrpo_hub.models.language_model import probe_prompt

        sources = resolve(self.name)
        policy = self.policy(settings, expected_prompts, sources.pinned)
        model: Any = getattr(policy, "language_model", policy)  # a policy that scores has one
        if sources.adapter and model.adapter_effect() == 0:
            given = f"the adapter {sources.adapter!r} does not change its base"
            raise UserError(f"{given}: both give the same output after a probe prompt")
        sampled = settings.mode == "generate"
        prompts = expected_prompts(model.prompt_format) if expected_prompts else [probe_prompt(model)]
        identity = {
            "kind": self.kind,
            **sources.identity(),
            "mode": settings.mode,
            "temperature": model.temperature if sampled else None,
            "max_new_tokens": settings.max_new_tokens if sampled else None,
            "chat_template": hashlib.sha256(json.dumps(model.tokenizer.chat_template).encode()).hexdigest()[:16],
            "dtype": str(model.model.dtype).removeprefix("torch."),
            "device": model.model.device.type,
            "engine": model.engine.choose(max(model.encode(prompts), key=len), model.max_new_tokens).name,
            **{package: importlib.metadata.version(package) for package in ("torch", "transformers", "peft")},
        }
        if settings.load_in_4bit:
            identity |= {"quantization": "nf4", "bitsandbytes": importlib.metadata.version("bitsandbytes")}
        identity |= _not_default(model.chat_template_kwargs, *((model.top_k, model.top_p) if sampled else (0, 1)))
        parts = [split_revision(source, None) for source in split_adapter(self.name) if source]
        shown = "+".join(public_name(source) + (f"@{revision}" if revision else "") for source, revision in parts)
        folder = "+".join(_folder_name(source) for source, _ in parts)
        commits = "+".join(commit[:12] for commit in (sources.base_commit, sources.adapter_commit) if commit)
        return Player(name=shown, policy=policy, identity=identity, folder=f"{folder}/{commits}", batched=True)

    def check_memory(self, settings: PlayerSettings) -> None:
        """Raises `UserError` if its weights are larger than the free memory."""
        from msgrpo_hub.downloads.fetching import base_bytes
        from msgrpo_hub.models.devices import free_memory

        needed, free = base_bytes(self.name, settings.dtype), free_memory(settings.device)
        if needed > free and not settings.load_in_4bit:
            raise UserError(
                f"the weights of {self.name!r} need {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free: expected "
                "a smaller model, --dtype bfloat16 or --load-in-4bit"
            )


def find_player(name: str) -> CodePlayer | ServedPlayer | ModelPlayer:
    """Parses the name of a player. Raises `UserError` if it is close to a known name, but not equal."""
    if name in SCRIPTED:
        return CodePlayer(name, "scripted")
    prefix, separator, _ = name.partition(":")
    if separator and prefix in ("dqn", "endpoint", "provider"):
        return CodePlayer(name, "dqn") if prefix == "dqn" else ServedPlayer(name, "endpoint")
    if name in OWN or name in (packaged := entry_points(group=GROUP).names):
        return CodePlayer(name, "entry point")
    names = [*SCRIPTED, POCKET, *built_in_adapters(), *packaged]
    if name not in names and difflib.get_close_matches(name, names, cutoff=0.8) and not exists(name):
        raise unknown("player", name, names)
    return ModelPlayer(name, "language model")


def import_player(name: str) -> None:
    """Imports a player `module:object` that was typed on this machine; any other name is left alone. Names of others never are.

    The object is a policy, a function without arguments that makes one, or a function (game, state, rng) that chooses an action.
    """
    if not names_code(name) or exists(name):
        return
    player = imported("player", name)
    parameters = len(inspect.signature(player).parameters) if callable(player) else -1
    if not hasattr(player, "complete") and parameters not in (0, 3):
        raise UserError(f"the player {name!r} is no policy: expected `complete(prompts, rngs)`, or a function (game, state, rng)")
    OWN[name] = player if parameters == 0 else lambda: ScriptedPolicy(player) if parameters == 3 else player


def can_play(name: str, game: Game) -> bool:
    """Whether a player knows a game: `optimal` plays only solvable games, and a DQN only those it was trained on."""
    if name.startswith("dqn:"):
        folder, game_id = name.removeprefix("dqn:"), game.id.partition(":")[0]
        return is_folder(folder) and Path(folder, f"{game_id}.safetensors").is_file()
    return name not in KNOWS or KNOWS[name](base_game(game))


@checked
def make_player(name: str, settings: PlayerSettings | None = None, expected_prompts: ExpectedPrompts | None = None) -> Policy:
    """The policy of a player. Arguments and errors as for `identify`."""
    return find_player(name).policy(settings or PlayerSettings(), expected_prompts)


def identify(name: str, settings: PlayerSettings, expected_prompts: ExpectedPrompts | None = None) -> Player:
    """The player of a name, loaded and pinned to commits.

    Args:
        name: a scripted player, `pocket`, a built-in adapter such as `lake`, a Hub id or a folder (base or LoRA adapter,
            `@revision` allowed), `base+adapter`, `dqn:FOLDER`, `endpoint:URL#MODEL`, `provider:NAME/MODEL`, a player of
            another package, or a `module:object` that `import_player` imported.
        settings: how a model plays; other players ignore them.
        expected_prompts: gives the prompts that a language model's context is checked for before its weights are loaded.

    Raises `UserError` if there is no such player.
    """
    return replace(find_player(name).load(settings, expected_prompts), prompt_format=settings.chosen_format)


def kind_of(identity: Mapping[str, Any]) -> Kind:
    """The kind of the player of a stored identity; one without properties if it is unknown."""
    return KINDS.get(str(identity.get("kind")), Kind())


def model_id(identity: Mapping[str, Any]) -> str:
    """The name of the model of a stored identity; empty for other players."""
    if kind_of(identity).served:
        provider, _, rest = str(identity.get("server")).partition(":")
        return rest.partition("/" if provider == "provider" else "#")[2]
    return str(identity.get("adapter") or identity.get("base")) if kind_of(identity).sampled else ""


def identity_problems(name: str, identity: object) -> list[str]:
    """Lists the missing, invalid and unknown fields of a stored identity, as readable messages.

    >>> identity_problems("greedy", {"kind": "scripted", "player": "random", "version": 1})
    ["the player is called 'greedy', but its identity is that of another player of kind scripted"]
    >>> identity_problems("dqn:lake", {"kind": "dqn"})
    ['its identity is incomplete: dqn without a valid weights']
    """
    if not isinstance(identity, Mapping) or identity.get("kind") not in list(KINDS):
        return [f"its identity does not say what kind of player it is: expected one of {', '.join(KINDS)}"]
    # 1) The identity has all fields of its kind, with valid values, and no other.
    kind, invalid = identity["kind"], list[str]()
    pairs = ("adapter", "adapter_commit"), ("quantization", "bitsandbytes")
    further = [field for pair in pairs if kind == "language model" and {*pair} & identity.keys() for field in pair]
    own = [*KINDS[kind].required, *further, *(field for field in KINDS[kind].optional if field in identity)]
    for field in own:
        value = identity.get(field)
        if field in ("weights", "base_commit", "adapter_commit"):
            valid = isinstance(value, str) and re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", value) is not None
        elif field in ("temperature", "max_new_tokens") and identity.get("mode") == "score":
            valid = value is None
        elif field in _VALUES:
            valid = not misfit(value, _VALUES[field])
        else:
            valid = value == VERSION if (kind, field) == ("scripted", "version") else isinstance(value, str) and bool(value)
        invalid += [] if valid else [field]
    if invalid:
        return [f"its identity is incomplete: {kind} without a valid {', '.join(invalid)}"]
    switches = {name for name in identity if KINDS[kind].sampled and name.startswith("chat_template_kwargs.")}
    if others := identity.keys() - {"kind", *own, *switches}:
        return [f"its identity has {min(others)[:80]!r}, which no player of kind {kind} has"]
    # 2) The name is one of such a player: `BASE`, `ADAPTER` or `BASE+ADAPTER`, each with or without a revision.
    if kind == "language model":
        at, base, adapter = "(?:@[^@+]+)?", *(re.escape(str(identity.get(field, ""))) for field in ("base", "adapter"))
        form = rf"(?:{base}{at}\+)?{adapter}{at}" if adapter else base + at
        commits = set(re.findall(r"@([0-9a-f]{40})(?:\+|$)", name))
        fits = re.fullmatch(form, name) and commits <= {identity["base_commit"], identity.get("adapter_commit")}
    else:
        fits = name.startswith("dqn:") if kind == "dqn" else name == identity[KINDS[kind].required[0]]
    if not fits:
        return [f"the player is called {name[:80]!r}, but its identity is that of another player of kind {kind}"]
    return []


def _not_default(chat_template_kwargs: Mapping[str, Any], top_k: int, top_p: float) -> dict[str, Any]:
    """The settings that differ from their defaults. Defaults are left out, which keeps identities short."""
    switches = {f"chat_template_kwargs.{name}": value for name, value in chat_template_kwargs.items()}
    return switches | ({"top_k": top_k} if top_k else {}) | ({"top_p": top_p} if top_p != 1 else {})


def _folder_name(name: str) -> str:
    """A name as one folder name: `org/model` becomes `org__model`, and a path is reduced to its last two parts."""
    path = Path(name)
    last = path.parts[-2:] if path.name.strip(".") else path.resolve().parts[-1:]
    short = "/".join(last) if path.is_absolute() or exists(path) else name
    return "".join(c if c.isalnum() or c in "-_.+" else "__" if c == "/" else "-" for c in short).strip("-.") or "player"
