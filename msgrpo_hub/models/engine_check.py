"""Decides which engine computes a model exactly, by comparing each with uncached passes of the model's own code.

It compares two prompts of different lengths, rows that fork, a tree of training, and prompts longer than the smallest window if
the window matters.

Large models and models of 16 bits are compared by a float32 copy of their first layers, with the rows of the vocabulary that the
prompt needs. In float32 a wrong mask or position differs by far more than rounding, and a few layers take a fraction of a second.
Models of 16 bits are then compared whole: the difference may be a few times the difference between two attention implementations
of the model itself. The result for a large model is stored for its weights and these versions.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import peft
import torch
import transformers
from peft import PeftModel
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PreTrainedModel

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.attention import attention_of, base_of
from msgrpo_hub.models.forward import FastForward, PlainForward
from msgrpo_hub.models.load_options import EngineName
from msgrpo_hub.models.log_probs import token_batch, token_log_probs
from msgrpo_hub.models.sampling import TokenIds, not_finite
from msgrpo_hub.storage.files import write_json

SMALL = 20_000_000
"""Models in float32 with fewer parameters are compared whole."""
SHORT = 32
"""Tokens of the prompt on which a model of 16 bits is compared whole."""
OWN_ROUNDING = 4
"""The largest difference in 16 bits, as a multiple of the difference between two of the model's own attention implementations."""
LARGEST_COPY = 2**31
"""Size limit of the float32 copy of the first layers, in bytes. Without a copy the model is compared whole."""

_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError, NotImplementedError, AssertionError)
"""Errors of models that do not fit an engine."""

Model = PreTrainedModel | PeftModel

log = logging.getLogger(__name__)


_FORWARDS: dict[str, Callable[[Model], FastForward]] = {
    "fast": FastForward,
    "plain": PlainForward,
    "plain without cache": partial(PlainForward, cached=False),
}
_SLOWER = {
    "plain": "several times slower",
    "plain without cache": "many times slower, since its cache is inexact and each token computes all before it",
}
_KNOWN_LAYERS = {"full_attention", "sliding_attention", "chunked_attention", "attention"}

Choice = tuple[str, str]
"""The name of a forward, and why it is not the fastest one."""

_CHOSEN: WeakKeyDictionary[nn.Module, dict[tuple[EngineName, bool], Choice]] = WeakKeyDictionary()
"""The choices for a model, without and with regard to its windows."""


def choose_forward(model: Model, kind: EngineName, prompt: TokenIds, at_least: int) -> FastForward:
    """The fastest forward whose log-probabilities match the model's uncached passes on a prompt.

    Each model is compared once. A slower forward is logged once, with the reason. The longest compared prompt has `at_least`
    tokens; 0 if no window matters.

    Raises:
        UserError: no allowed forward agrees with the model's uncached passes.
    """
    chosen, key, known = _CHOSEN.setdefault(model, {}), (kind, at_least > 0), None
    if key not in chosen:
        stored = _result_file(model, kind, at_least) if base_of(model).num_parameters() >= SMALL else None
        if stored:
            with suppress(OSError, ValueError, TypeError):  # no result, or a damaged one
                name, why = json.loads(stored.read_text(encoding="utf-8"))
                known = str(name), str(why)
        chosen[key] = known or _compare(model, kind, prompt, at_least)
        if stored and not known:
            with suppress(OSError):  # a read-only home: the model is compared again next time
                stored.parent.mkdir(parents=True, exist_ok=True)
                write_json(stored, chosen[key])
        if why := chosen[key][1]:
            log.warning(why)
    return _FORWARDS[chosen[key][0]](model)


def _compare(model: Model, kind: EngineName, prompt: TokenIds, at_least: int) -> Choice:
    """The first forward, in the order of speed, with the log-probabilities of the model's uncached passes."""
    config, training = base_of(model).config, model.training
    large, low = base_of(model).num_parameters() >= SMALL, model.dtype in (torch.bfloat16, torch.float16)
    other = sorted(set(config.get_text_config().to_dict().get("layer_types") or ()) - _KNOWN_LAYERS)
    if large:
        log.info("comparing the engine with the passes of %r, once for these weights and versions", base_of(model).name_or_path)
    model.eval()
    try:
        with torch.no_grad():
            small = _miniature(model, prompt) if large or low else None
            references = [_Reference.of(*(small or (model, prompt)), at_least)]
            if small and low:
                references.append(_Reference.of(model, prompt[:SHORT], 0))
            refused = problem = ""
            for name in _SLOWER if kind == "plain" else ("fast", *_SLOWER):
                if name == "fast" and other:
                    problem = f"it has {', '.join(other)} layers"
                else:
                    problem = next(filter(None, (reference.disagreement(name) for reference in references)), "")
                if not problem:
                    why = f"{config.model_type!r} samples and trains by the plain engine ({refused}): exact, but "
                    return name, why + _SLOWER[name] if refused else ""
                if kind == "fast":
                    raise _unsupported(model, f"the fast engine cannot compute it exactly: {problem}", "use --engine auto")
                refused = problem if name == "fast" else refused
            raise _unsupported(model, problem, "use a causal language model")
    finally:
        model.train(training)


def _unsupported(model: Model, problem: str, advice: str) -> UserError:
    return UserError(f"models of type {base_of(model).config.model_type!r} are not supported ({problem}): {advice}")


# ---- the stored result


def _result_file(model: Model, kind: EngineName, at_least: int) -> Path:
    """The file with the result for these weights and versions on this processor.

    A few numbers of each weight identify it, so that no gigabytes are hashed. LoRA matrices count by name and shape.
    """
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        first = [] if "lora_" in name else weight.detach().flatten()[:8].float().tolist()
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype} {weight.device.type} {first}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    device = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else torch.backends.cpu.get_cpu_capability()
    versions = torch.__version__, transformers.__version__, peft.__version__
    digest.update(repr((kind, at_least, base_of(model).config.to_json_string(use_diff=False), device, versions)).encode())
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "msgrpo_hub" / "engines" / f"{digest.hexdigest()[:32]}.json"


# ---- a float32 copy of the first layers


def _miniature(model: Model, prompt: TokenIds) -> tuple[Model, TokenIds] | None:
    """A float32 copy of the first layers of a model, at least one of each kind, and the prompt in its vocabulary.

    The vocabulary is cut to the tokens of the prompt where embedding and head are plain. Returns None where the layers cannot be
    told from the rest, or the copy would be too large: quantised models, models that also see.
    """
    base = base_of(model)
    text = base.config.get_text_config()
    layers = next((m for m in base.modules() if isinstance(m, nn.ModuleList) and len(m) == text.num_hidden_layers), None)
    if layers is None or getattr(base, "is_quantized", False):
        return None
    lists = [value for value in text.to_dict().values() if isinstance(value, list) and len(value) == len(layers)]
    kinds = []  # what distinguishes layers: their modules, their entries in the lists of the configuration, their windows
    for index, layer in enumerate(layers):
        modules = [(name, type(part)) for name, part in layer.named_modules()]
        window = getattr(getattr(layer, "self_attn", None), "sliding_window", None)
        kinds.append((modules, [value[index] for value in lists], window))
    count = max(2, 1 + max(kinds.index(kind) for kind in kinds)) if base_of(model).num_parameters() >= SMALL else len(layers)
    memo: dict[int, Any] = {}
    tokens = sorted(set(prompt))
    embedding, head = cast(Any, base.get_input_embeddings()), cast(Any, base.get_output_embeddings())
    cut = isinstance(embedding, nn.Embedding) and type(head) is nn.Linear and head.bias is None
    if cut:
        for weight in (embedding.weight, head.weight):
            memo[id(weight)] = nn.Parameter(weight.detach()[tokens].float(), requires_grad=False)
    left_out = {*memo, *map(id, nn.ModuleList(layers[count:]).parameters())}
    if 4 * sum(p.numel() for p in base.parameters() if id(p) not in left_out) > LARGEST_COPY:
        return None
    try:
        memo[id(layers)] = copy.deepcopy(nn.ModuleList(layers[:count]), memo)
        small = copy.deepcopy(model, memo)
        cast(nn.Module, small).float().eval()
    except _ERRORS:
        return None
    own = base_of(small)
    for config in {id(c): c for c in (own.config, own.config.get_text_config())}.values():
        config.num_hidden_layers = count
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:count]
    if cut:
        cast(nn.Embedding, own.get_input_embeddings()).padding_idx = None
        own.config.get_text_config().vocab_size = len(tokens)
        place = {token: index for index, token in enumerate(tokens)}
        prompt = tuple(place[token] for token in prompt)
    return small, prompt


# ---- the comparison


@dataclass(frozen=True)
class _Reference:
    """Sequences and their log-probabilities by uncached passes.

    The sequences are p·a·b, p·b·a and q·a·b: q is a beginning of the prompt p, a and b are tokens.
    """

    model: Model
    sequences: tuple[TokenIds, TokenIds, TokenIds]
    log_p: Tensor
    """(3, 3, V) of each sequence: after p or q, after one token more, and after two."""
    of_tokens: Tensor
    """(3, 2) log p of the last two tokens of each sequence."""
    attention: str
    """The attention implementation of these passes."""

    @classmethod
    def of(cls, model: Model, prompt: TokenIds, at_least: int) -> _Reference:
        """The reference of a prompt, repeated to the given length.

        Raises:
            UserError: the model is not causal, or returns NaN.
        """
        long = (prompt * (at_least // len(prompt) + 1))[: max(at_least, len(prompt))]
        short = long[: max(1, len(long) * 2 // 3)]
        a = long[0]
        b = next((token for token in reversed(long) if token != a), a)
        sequences = (*long, a, b), (*long, b, a), (*short, a, b)
        try:
            attention = "eager"  # some versions of transformers skip softcapping in others
            log_p = _uncached(model, sequences, attention)
            if log_p.isnan().any() and model.dtype == torch.float16:  # it scales the scores after their product, in 16 bits
                log_p = _uncached(model, sequences, attention := "sdpa")
        except _ERRORS as error:
            problem = f"its own forward pass ends with {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise _unsupported(model, problem, "use another version of transformers, or of the model") from error
        if log_p.isnan().any() and model.dtype == torch.float16:
            raise _unsupported(model, "in float16 its own forward pass overflows", "use --dtype bfloat16 or float32")
        if log_p.isnan().any():
            raise not_finite()
        last = torch.tensor([sequence[-2:] for sequence in sequences], device=log_p.device)
        reference = cls(model, sequences, log_p, log_p[:, :2].gather(2, last[..., None])[..., 0], attention)
        if problem := reference.differs(_difference(log_p[0, 0], log_p[1, 0])):
            raise _unsupported(
                model, f"later tokens change earlier ones by {problem}: it is not causal", "use a causal language model"
            )
        return reference

    def differs(self, difference: float) -> str:
        """A mean difference in nats as text if it exceeds rounding, or an empty text."""
        allowed = max(5e-4, 16 * torch.finfo(self.model.dtype).eps)
        if difference > allowed and self.model.dtype != torch.float32:
            kernels = sdpa_kernel(SDPBackend.MATH) if self.attention == "sdpa" else nullcontext()
            with suppress(*_ERRORS), kernels:
                other = _uncached(self.model, self.sequences, "sdpa")
                allowed = max(allowed, OWN_ROUNDING * max(map(_difference, other.flatten(0, 1), self.log_p.flatten(0, 1))))
        return "" if difference <= allowed else f"{difference:.2g}"

    def disagreement(self, name: str) -> str:
        """The first result of a forward that differs from uncached passes, in words; empty if none does."""
        forward = _FORWARDS[name](self.model)
        for what, check in (("sampling", self._sampling), ("training", self._training)):
            try:
                difference = check(forward)
            except _ERRORS as error:
                problem = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                return f"{what} does not compute with shared keys and values: {problem}"
            if problem := self.differs(difference):
                return f"log-probabilities of {what} differ by {problem}"
        return ""

    def _sampling(self, forward: FastForward) -> float:
        """Prompts of two lengths, padded if need be, rows that fork, and a draft. The largest difference of a distribution."""
        prompts, prompt_of = [self.sequences[0][:-2], self.sequences[2][:-2]], (0, 0, 1)
        worst = 0.0
        with forward.acting():
            forward.share(prompts)
            for batch in forward.batches(prompts, len(prompts)):
                logits, rows = forward.prefill([prompts[i] for i in batch])
                mine = [k for k, prompt in enumerate(prompt_of) if prompt in batch]
                forked = [batch.index(prompt_of[k]) for k in mine]
                rows.select(np.array(forked))
                tokens = np.array([self.sequences[k][-2:] for k in mine])
                given = tokens[:, :1]
                if forward.shares_prefixes:  # and a draft, right for the second sequence only, which all rows drop
                    given = np.insert(given, 1, self.sequences[1][-1], 1)
                steps = [logits[forked], rows.step(given)[:, 0]]
                rows.select(np.arange(len(mine)), np.ones(len(mine), np.int64))
                steps += [rows.step(tokens[:, 1:])[:, 0]]
                ours = torch.log_softmax(torch.stack(steps, 1).float(), -1)
                worst = max(worst, *map(_difference, ours.flatten(0, 1), self.log_p[mine].flatten(0, 1)))
        return worst

    def _training(self, forward: FastForward) -> float:
        tree, pairs = forward.shares_prefixes, [(sequence[:-2], sequence[-2:]) for sequence in self.sequences]
        cut = min(len(self.sequences[2]) // 2, len(pairs[2][0]) - 1) if tree else 0
        batch, index = token_batch([pairs] if tree else [[pair] for pair in pairs], cut)
        ours = token_log_probs(self.model, batch, 1.0, tree=tree)
        return _difference(ours[index], self.of_tokens.flatten())


def _difference(ours: Tensor, expected: Tensor) -> float:
    """The mean absolute difference of log-probabilities, in nats; infinite values that agree count as equal."""
    difference = (ours.float() - expected.float()).abs()
    return float(torch.where(ours == expected, 0.0, difference).mean())


def _uncached(model: Model, sequences: Sequence[TokenIds], attention: str) -> Tensor:
    """(sequences, 3, V) next-token log-probabilities at the last three positions of each sequence, in float32."""
    keep = {"logits_to_keep": 3} if "logits_to_keep" in inspect.signature(base_of(model).forward).parameters else {}
    with attention_of(model, attention):
        inputs = [torch.tensor([sequence], device=model.device) for sequence in sequences]
        logits = [model(input_ids=ids, use_cache=False, **keep).logits[0, -3:].float() for ids in inputs]
    return torch.log_softmax(torch.stack(logits), -1)
