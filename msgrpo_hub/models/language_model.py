"""A language model as a policy (the paper's LAP): a base or a LoRA adapter from the Hub or a folder, or the built-in base."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import torch
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from msgrpo_hub.agent.policy import Prompt, build_prompt, format_of
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.downloads.inspection import Scalar
from msgrpo_hub.downloads.names import POCKET, pocket_path
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import Count, Range, check, check_fields
from msgrpo_hub.games import episode_seed, make_game, stream
from msgrpo_hub.models.adapters import load_adapter
from msgrpo_hub.models.context import check_context, context_limit
from msgrpo_hub.models.devices import SMALL_MODEL, check_device
from msgrpo_hub.models.encoding import PromptEncoder
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.load_options import Dtype, EngineName, ReplyLength, Temperature, TopK, TopP
from msgrpo_hub.models.loading import load_base, open_model
from msgrpo_hub.models.sampling import TokenIds

log = logging.getLogger(__name__)


@dataclass
class LanguageModel:
    """A causal language model with a chat template that answers prompts.

    Args:
        model: the model; a `peft.PeftModel` if it has LoRA.
        tokenizer: the tokenizer, with a chat template.
        temperature: sampling temperature; 0 is greedy.
        max_new_tokens: largest number of tokens per reply; a truncated reply has `finish="length"`.
        max_rows: largest number of samples per batch; bounds memory and does not affect results, beyond rounding.
        name: the source of the model.
        prompt_format: the format stored with the adapter; None if none is stored.
        chat_template_kwargs: variables of the chat template, such as `enable_thinking`.
        top_k: number of tokens that are sampled from; 0 is all.
        top_p: probability of the tokens that are sampled from; 1 is all.
        engine_name: `fast`, `plain`, or `auto`.
        threads: CPU threads for its replies; None leaves torch's setting.
    """

    model: PreTrainedModel | PeftModel
    tokenizer: PreTrainedTokenizerBase
    temperature: Temperature = 1.0
    max_new_tokens: ReplyLength = 256
    max_rows: Count = 512
    name: str = ""
    prompt_format: PromptFormat | None = None
    chat_template_kwargs: Mapping[str, Scalar] = field(default_factory=dict)
    top_k: TopK = 0
    top_p: TopP = 1.0
    engine_name: EngineName = "auto"
    threads: Annotated[int, Range(1, 1024)] | None = None
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        check_fields(self)
        self.encoder = PromptEncoder(self.tokenizer, self.chat_template_kwargs)
        ends = end_tokens(self.model, self.tokenizer) | self.encoder.turn_end
        self.engine = Engine(self.model, ends, self.max_rows, self.engine_name, self.threads)
        self.context_limit = context_limit(self.model.config)

    @classmethod
    def from_pretrained(
        cls,
        repo_or_path: str | Path,
        adapter: str | Path | None = None,
        revision: str | None = None,
        *,
        dtype: Dtype = "auto",
        device: str = "auto",
        load_in_4bit: bool = False,
        engine: EngineName = "auto",
        chat_template: str | None = None,
        temperature: float = 1.0,
        max_new_tokens: int = 256,
        prompt_format: PromptFormat | None = None,
        expected_prompts: Callable[[PromptFormat | None], Sequence[Prompt]] | None = None,
        chat_template_kwargs: Mapping[str, Scalar] | None = None,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> LanguageModel:
        """Loads a model from the Hub or a folder.

        Arguments without an entry below are as in the class.

        Args:
            repo_or_path: a base model, a LoRA adapter (its base is loaded at the revision that the adapter's config
                names), or `pocket`, the built-in base.
            adapter: a LoRA adapter to apply to the base; `name@revision` is allowed.
            revision: branch, tag or commit of `repo_or_path`; `name@revision` is equivalent.
            dtype: type of the base weights; `auto` is the checkpoint's type.
            device: such as `cpu` or `cuda`; `auto` is the GPU, or the CPU without one and for small models. `meta` downloads no
                weights: the model has shapes only, and no adapter.
            load_in_4bit: quantise the linear layers to 4 bits with bitsandbytes.
            engine: `fast` shares prefixes, `plain` uses the model's own forward; `auto` is fast where that is exact.
            chat_template: a file with a Jinja chat template, in place of the adapter's or else the base's.
            prompt_format: overrides the format stored with the adapter.
            expected_prompts: the model's prompt format, or None → long prompts of the games to be played; they are checked
                against the model's context before the weights are loaded.
            chat_template_kwargs: variables of the chat template; override the adapter's.

        Raises:
            UserError: the model, adapter or template cannot be found or do not fit together, or the context is too short.
        """
        if device != "meta":
            check_device(device)
        check("repo_or_path", repo_or_path, str | Path)
        files = open_model(
            name := str(repo_or_path),
            str(adapter) if adapter else None,
            revision,
            chat_template=chat_template,
            prompt_format=prompt_format,
            chat_template_kwargs=chat_template_kwargs,
            weights=device != "meta",
        )
        if expected_prompts:
            prompts, limit = expected_prompts(files.prompt_format), context_limit(files.config)
            base = POCKET if files.base.folder == pocket_path() else files.base.source
            check_context(files.encoder, prompts, limit, max_new_tokens, base, known=False)
        model = load_base(files.base, files.config, dtype, device, load_in_4bit=load_in_4bit)
        loaded = cls(
            load_adapter(model, files.adapter) if files.adapter and device != "meta" else model,
            files.tokenizer,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            max_new_tokens=max_new_tokens,
            name=name,
            prompt_format=files.prompt_format,
            chat_template_kwargs=files.chat_template_kwargs,
            engine_name=engine,
            threads=1 if model.num_parameters() < SMALL_MODEL else None,
        )
        if added := loaded.engine.end_ids - end_tokens(model, files.tokenizer):
            token = files.tokenizer.decode(list(added))
            log.warning("%s: replies also end at %r, with which the chat template ends a turn", name, token)
        return loaded

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        """One reply per prompt; the randomness of reply i comes only from `rngs[i]`."""
        if len(prompts) != len(rngs):
            raise UserError(f"{len(prompts)} prompts and {len(rngs)} generators: expected a generator for each prompt")
        if not prompts:
            return []
        ids = self.encode(prompts)
        samples = self.engine.sample(ids, rngs, self.temperature, self.max_new_tokens, self.top_k, self.top_p)
        distinct = list(dict.fromkeys((sample.token_ids, sample.finish) for sample in samples))
        texts = dict(zip(distinct, self.encoder.decode(distinct), strict=True))
        return [
            Completion(
                text=texts[sample.token_ids, sample.finish],
                finish=sample.finish,
                prompt_ids=prompt_ids,
                token_ids=sample.token_ids,
                log_probs=sample.log_probs,
                entropies=sample.entropies,
                near_draws=sample.near_draws,
            )
            for prompt_ids, sample in zip(ids, samples, strict=True)
        ]

    def caching(self) -> AbstractContextManager[None]:
        """A context for a set of episodes: earlier replies draft later ones, and LoRA is merged into its base."""
        return self.engine.caching(merge=True)

    def encode(self, prompts: Sequence[Prompt]) -> list[TokenIds]:
        """The token ids of prompts, through the chat template. Raises `UserError` if a prompt and a reply may not fit."""
        check_context(self.encoder, prompts, self.context_limit, self.max_new_tokens, self.name)
        return self.encoder.encode(prompts)

    def render(self, prompts: Sequence[Prompt]) -> list[str]:
        """The prompts as texts, through the chat template."""
        return self.encoder.template.render([prompt.messages for prompt in prompts])

    def adapter_effect(self) -> float:
        """The largest difference, in nats, that the adapter makes to the next-token log-probabilities after `probe_prompt`."""
        row, found = torch.tensor(self.encode([probe_prompt(self)]), device=self.model.device), []
        for around in (nullcontext(), cast(PeftModel, self.model).disable_adapter()):
            with torch.no_grad(), around:
                found.append(torch.log_softmax(self.model(row).logits[0, -1].float(), dim=-1))
        return float((found[0] - found[1]).abs().max())


def probe_prompt(agent: LanguageModel) -> Prompt:
    """A prompt of Frozen Lake in the model's own format, to test a model with."""
    game = make_game("FrozenLake-NotSlippery-v1")
    state = game.initial_state(stream(episode_seed(game.id, "validation", 0), "initial_state"))
    return build_prompt(game, state, format_of(agent))


def end_tokens(model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The tokens that end a reply according to the tokenizer and the generation config."""
    config = model.generation_config
    configured = config.eos_token_id if config is not None else None
    ends = configured if isinstance(configured, list) else [configured]
    return frozenset(token for token in [*ends, tokenizer.eos_token_id] if isinstance(token, int))
