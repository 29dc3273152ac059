"""A language model as a policy (the paper's LAP): base or LoRA adapter, from the Hub or a folder, or the built-in base."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast

import jinja2
import numpy as np
import torch
from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError
from peft import PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from msgrpo_hub.agent.engine import Engine, TokenIds
from msgrpo_hub.agent.prompt import Message, Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError

POCKET = "pocket"
"""The name of the built-in base model."""

_WEIGHTS = "adapter_model.safetensors"

Dtype = Literal["auto", "float32", "bfloat16"]


def pocket_path() -> Path:
    """The folder of the built-in base, in the installed package."""
    return Path(str(files("msgrpo_hub") / "pocket" / "model"))


@dataclass
class LanguageModel:
    """A causal language model with a chat template that answers prompts.

    Args:
        model: the model; with LoRA it is a `peft.PeftModel`.
        tokenizer: its tokenizer, with a chat template.
        temperature: of sampling; 0 is greedy.
        max_new_tokens: the limit of a reply; one cut there is marked `finish="length"`.
        max_rows: how many samples advance together at most; a bound on memory, without effect on results.
        name: what the model was loaded from.
    """

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase
    temperature: float = 1.0
    max_new_tokens: int = 256
    max_rows: int = 512
    name: str = ""
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise UserError(f"temperature = {self.temperature}: expected at least 0, which is greedy")
        if self.max_new_tokens < 1:
            raise UserError(f"max_new_tokens = {self.max_new_tokens}: expected at least 1")
        self.engine = Engine(self.model, end_tokens(self.model, self.tokenizer), self.max_rows)
        self._system_role = _takes_system_role(self.tokenizer)
        self._prompt_ids: dict[Prompt, TokenIds] = {}

    @classmethod
    def from_pretrained(
        cls,
        repo_or_path: str,
        adapter: str | None = None,
        revision: str | None = None,
        *,
        dtype: Dtype = "auto",
        device: str | None = None,
        chat_template: str | None = None,
        temperature: float = 1.0,
        max_new_tokens: int = 256,
    ) -> LanguageModel:
        """Loads a model from the Hub or a folder.

        Args:
            repo_or_path: a base model, a LoRA adapter (its base is then loaded at the revision that the adapter's config
                names), or `pocket`, the built-in base.
            adapter: a LoRA adapter to put on the base; `name@revision` is allowed.
            revision: of `repo_or_path`; `name@revision` is the same.
            dtype: of the base weights; `auto` is that of the checkpoint.
            device: such as `cuda`; by default a GPU where there is one.
            chat_template: a file with a Jinja chat template, for models without one.

        Raises:
            UserError: the model, adapter or template cannot be found or do not fit together.
        """
        source, revision = split_revision(repo_or_path, revision)
        source = str(pocket_path()) if source == POCKET else source
        adapter_source, adapter_revision = split_revision(adapter, None) if adapter else (None, None)
        own = read_adapter_config(source, revision)
        if own is not None:
            if adapter_source:
                raise UserError(f"{source!r} is a LoRA adapter, not a base model: give it alone, or a base before --adapter")
            adapter_source, adapter_revision = source, revision
            source, revision = base_of(own, source), own.get("revision")
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        base, tokenizer = _load_base(source, revision, dtype, device)
        model = _load_adapter(base, adapter_source, adapter_revision) if adapter_source else base
        _set_template(tokenizer, source, chat_template)
        return cls(model, tokenizer, temperature, max_new_tokens, name=repo_or_path)

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        """One reply per prompt; the randomness of reply i comes from `rngs[i]` alone."""
        ids = self.encode(prompts)
        samples = self.engine.sample(ids, rngs, self.temperature, self.max_new_tokens)
        texts = self.tokenizer.batch_decode([sample.token_ids for sample in samples], skip_special_tokens=True)
        return [
            Completion(
                text=text,
                finish=sample.finish,
                prompt_ids=sample.prompt_ids,
                token_ids=tuple(sample.token_ids),
                log_probs=tuple(sample.log_probs),
                entropies=tuple(sample.entropies),
            )
            for text, sample in zip(texts, samples, strict=True)
        ]

    def encode(self, prompts: Sequence[Prompt]) -> list[TokenIds]:
        """The token ids of prompts, through the chat template; equal prompts are encoded once."""
        new = list(dict.fromkeys(prompt for prompt in prompts if prompt not in self._prompt_ids))
        if new:
            if len(self._prompt_ids) > 100_000:
                self._prompt_ids.clear()
                new = list(dict.fromkeys(prompts))
            texts = [self.render(prompt) for prompt in new]
            encoded = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
            self._check_length(max(map(len, encoded)))
            self._prompt_ids.update(zip(new, map(tuple, encoded), strict=True))
        return [self._prompt_ids[prompt] for prompt in prompts]

    def render(self, prompt: Prompt) -> str:
        """The prompt as text. A template without a system role gets the system text at the head of the user message."""
        messages = prompt.messages if self._system_role else _merge_system(prompt.messages)
        text = self.tokenizer.apply_chat_template(cast(Any, messages), add_generation_prompt=True, tokenize=False)
        return cast(str, text)

    def _check_length(self, longest: int) -> None:
        config = self.model.config.get_text_config()
        slides = "sliding_attention" in (getattr(config, "layer_types", None) or ["sliding_attention"])
        window = getattr(config, "sliding_window", None) if slides else None  # the engine attends to everything before
        limit = min(filter(None, (getattr(config, "max_position_embeddings", None), window)), default=None)
        if limit and longest + self.max_new_tokens > limit:
            raise UserError(
                f"a prompt of {longest} tokens and a reply of up to {self.max_new_tokens} do not fit into the "
                f"{limit} positions that {self.name!r} attends to: lower --max-new-tokens or take a model with a longer context"
            )


def split_revision(name: str, revision: str | None) -> tuple[str, str | None]:
    """`org/model@revision` → name and revision. An existing path is never split.

    >>> split_revision("org/model@v1", None)
    ('org/model', 'v1')
    """
    if "@" in name and not Path(name).exists():
        name, _, at = name.rpartition("@")
        return name, revision or at
    return name, revision


def end_tokens(model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every token that ends a reply: the tokenizer's and those of the generation config."""
    config = model.generation_config
    given = config.eos_token_id if config is not None else None
    ends = given if isinstance(given, list) else [given]
    return frozenset(token for token in [*ends, tokenizer.eos_token_id] if token is not None)


def read_adapter_config(source: str, revision: str | None) -> dict[str, Any] | None:
    """The `adapter_config.json` of a repository or folder; None where there is none."""
    if Path(source).is_dir():
        path = Path(source) / "adapter_config.json"
        return cast(dict[str, Any], json.loads(path.read_text())) if path.exists() else None
    try:
        path = Path(hf_hub_download(source, "adapter_config.json", revision=revision))
    except LocalEntryNotFoundError as error:  # no network: a base model may still be in the cache
        if isinstance(try_to_load_from_cache(source, "config.json", revision=revision), str):
            return None
        raise _not_found(source, revision, error) from error
    except EntryNotFoundError:
        return None
    except (OSError, HFValidationError) as error:
        raise _not_found(source, revision, error) from error
    return cast(dict[str, Any], json.loads(path.read_text()))


def base_of(config: dict[str, Any], adapter: str) -> str:
    """The base model that an adapter's config names; the built-in base is found wherever it is installed."""
    base = str(config.get("base_model_name_or_path") or "")
    if not base:
        raise UserError(f"the adapter {adapter!r} does not name its base model: give both, as BASE+ADAPTER")
    if Path(base).parts[-3:] == pocket_path().parts[-3:]:
        return str(pocket_path())
    return base


def _load_base(source: str, revision: str | None, dtype: Dtype, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    try:
        # False, not the default: left out, transformers would ask at the terminal whether to run a model's own code.
        tokenizer = AutoTokenizer.from_pretrained(source, revision=revision, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(source, revision=revision, dtype=dtype, trust_remote_code=False)
    except (OSError, ValueError, ImportError) as error:
        raise _not_found(source, revision, error) from error
    if tokenizer.vocab_size < 2:
        raise _not_found(source, revision, ValueError("it has no tokenizer"))
    return cast(PreTrainedModel, model.to(cast(Any, device)).eval()), tokenizer


def _load_adapter(model: PreTrainedModel, source: str, revision: str | None) -> PeftModel:
    base = model.config._name_or_path
    try:
        adapted = PeftModel.from_pretrained(model, source, revision=revision).eval()
        folder = Path(source)
        path = folder if folder.is_dir() else Path(hf_hub_download(source, _WEIGHTS, revision=revision)).parent
        with safe_open(path / _WEIGHTS, framework="pt") as file:
            given = set(file.keys())
    except (OSError, HFValidationError, SafetensorError) as error:
        raise _not_found(source, revision, error) from error
    except (RuntimeError, ValueError, KeyError) as error:
        raise UserError(f"the adapter {source!r} does not fit its base {base!r}: {' '.join(str(error).split())[:300]}") from error
    if given != (wanted := set(get_peft_model_state_dict(adapted))):  # PEFT only warns
        difference = (
            f"{len(wanted - given)} of its {len(wanted)} layers get no weights, {len(given - wanted)} weights find no layer"
        )
        raise UserError(f"the adapter {source!r} does not fit its base {base!r}: {difference}")
    return adapted


def _set_template(tokenizer: PreTrainedTokenizerBase, source: str, file: str | None) -> None:
    """Puts a given chat template in place, and refuses a model whose template is missing or broken."""
    if file:
        try:
            tokenizer.chat_template = Path(file).read_text()
        except OSError as error:
            raise UserError(f"cannot read the chat template {file!r} ({error.strerror}): expected a Jinja file") from error
    if not tokenizer.chat_template:
        raise UserError(f"{source!r} has no chat template: give one with --chat-template FILE (Jinja)")
    try:
        tokenizer.apply_chat_template([{"role": "user", "content": "a question"}], add_generation_prompt=True, tokenize=False)
    except jinja2.TemplateError as error:
        raise UserError(f"the chat template of {file or source!r} does not work ({error}): expected a Jinja template") from error


def _not_found(source: str, revision: str | None, error: Exception) -> UserError:
    """One line for a model that cannot be loaded: a missing folder, an unknown repository, or no network."""
    at = f" at revision {revision!r}" if revision else ""
    if source.startswith((".", "/", "~")) or Path(source).exists():
        return UserError(
            f"no model in the folder {source!r}: expected config.json, tokenizer and weights there ({_first(error)})"
        )
    return UserError(
        f"cannot load {source!r}{at}: expected 'pocket', a folder, or a Hub id that can be reached or is cached ({_first(error)})"
    )


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _merge_system(messages: list[Message]) -> list[Message]:
    system, user = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}]


def _takes_system_role(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the chat template accepts a system message and shows it."""
    messages = [{"role": "system", "content": "a marker"}, {"role": "user", "content": "a question"}]
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except (jinja2.TemplateError, ValueError):
        return False
    return "a marker" in cast(str, text)
