"""Decides which engine computes a model exactly, by comparing each with uncached passes of the model's own code.

A recurrent state passes a check of one prompt and fails on a padded batch or a forked row, and a window is not seen by a
prompt shorter than it. The comparison therefore has two prompts of different lengths, rows that fork, a tree of training,
and prompts longer than the smallest window where the window matters.

Large models and models of 16 bits are compared twice:

1. *Structure*: a float32 copy of the first layers, with the rows of the vocabulary that the prompt needs, on the whole prompt.
   In float32 a wrong mask or position differs by far more than rounding, and a few layers take a fraction of a second.
2. *Numbers*: the whole model, in its own type, on a short prompt. It may differ from its own uncached pass by a few times as
   much as two of its own attention implementations differ from each other.

The result is stored for these weights and versions, so that the same model is compared once on a machine.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import peft
import torch
import transformers
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.attention import attention_of, base_of
from msgrpo_hub.models.direct_decoder import hooked, is_known
from msgrpo_hub.models.fast_forward import FastForward, Passes, passes_of
from msgrpo_hub.models.fused_step import kernel_errors
from msgrpo_hub.models.load_options import EngineName
from msgrpo_hub.models.log_probs import token_log_probs
from msgrpo_hub.models.plain_forward import PlainForward
from msgrpo_hub.models.sampling import TokenIds, not_finite
from msgrpo_hub.models.token_tree import TokenTree, build_tree
from msgrpo_hub.storage.files import write_json

SMALL = 20_000_000
"""Models with fewer parameters are compared with all their layers and on the whole prompt, and the result is not stored."""
SHORT = 32
"""Tokens of the prompt on which a larger model is compared whole."""
LARGEST_COPY = 2**31
"""Bytes that the float32 copy of the first layers may take; without a copy the model is compared whole on the whole prompt."""
OWN_ROUNDING = 4
"""A model may differ from itself by this many times the difference between two of its own attention implementations."""

_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError, NotImplementedError, AssertionError)
"""Errors of models that do not fit an engine."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """An engine without its model, so that it can be stored."""

    cached: bool | None
    """Of the plain engine; None for the fast one."""
    passes: Passes
    split_head: bool
    why: str

    @classmethod
    def of(cls, forward: FastForward | PlainForward, why: str) -> Choice:
        cached = forward.cached if isinstance(forward, PlainForward) else None
        return cls(cached, forward.passes if isinstance(forward, FastForward) else "modules", forward.split_head, why)

    def forward(self, model: PreTrainedModel | PeftModel) -> FastForward | PlainForward:
        """A new forward of this kind."""
        made = FastForward(model, self.passes) if self.cached is None else PlainForward(model, self.cached)
        made.split_head = self.split_head
        return made


_CHOSEN: WeakKeyDictionary[nn.Module, dict[tuple[EngineName, bool], Choice]] = WeakKeyDictionary()
"""What was chosen for a model, with and without regard to its windows."""


def choose_forward(
    model: PreTrainedModel | PeftModel, kind: EngineName, prompt: TokenIds, at_least: int
) -> tuple[FastForward | PlainForward, str]:
    """The forward for a model, and one line that says why if it is the plain one though the fast one was allowed.

    A model is compared once, and the log gets the line once.

    Args:
        model: a causal language model.
        kind: `fast`, `plain`, or `auto`.
        prompt: a prompt to compare with.
        at_least: the length that the longest compared prompt must have; 0 if no window matters.

    Raises:
        UserError: no allowed forward agrees with the model's uncached passes.
    """
    chosen = _CHOSEN.setdefault(model, {})
    key = kind, at_least > 0
    if key not in chosen:
        large = _size(model) >= SMALL
        stored = _result_file(model, kind, at_least) if large else None
        known = _read(stored) if stored else None
        chosen[key] = known or _compare(model, kind, prompt, at_least, large)
        if stored and not known:
            with suppress(OSError):  # a read-only home: the model is compared again next time
                stored.parent.mkdir(parents=True, exist_ok=True)
                write_json(stored, asdict(chosen[key]))
        if chosen[key].why:
            log.warning(chosen[key].why)
    return chosen[key].forward(model), chosen[key].why


def _compare(model: PreTrainedModel | PeftModel, kind: EngineName, prompt: TokenIds, at_least: int, large: bool) -> Choice:
    """The first engine in the order of speed that computes what the model's uncached passes do."""
    if large:
        log.info("comparing the engine with %r's own passes, once for these weights and versions", _name(model))
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            references = []
            if large or model.dtype != torch.float32:
                miniature = _miniature(model, prompt)
                if miniature is not None:
                    references = [_Reference.of(miniature[0], miniature[1], at_least)]
            whole = _Reference.of(model, prompt[: SHORT if references and large else None], 0 if references else at_least)
            return Choice.of(*_chosen(model, kind, [*references, whole]))
    finally:
        model.train(training)


def _chosen(
    model: PreTrainedModel | PeftModel, kind: EngineName, references: Sequence[_Reference]
) -> tuple[FastForward | PlainForward, str]:
    problem = f"{where} has a hook" if kind != "plain" and is_known(model) and (where := hooked(model)) else ""
    if kind != "plain":
        for passes in passes_of(model):
            fast = FastForward(model, passes)
            refused, problem = problem, _other_layers(model) or _disagreement(fast, references)
            if not problem:
                if refused:
                    log.warning("%s acts by %s passes, since faster ones failed: %s", _type(model), passes, refused)
                return fast, ""
        if kind == "fast":
            raise _unsupported(model, f"the fast engine cannot compute it exactly: {problem}", "use --engine auto")
    for cached in (True, False):
        plain = PlainForward(model, cached)
        plain_problem = _disagreement(plain, references)
        if not plain_problem:
            why_slow = "many times slower, since its cache is inexact and each token computes all before it"
            cost = "several times slower" if cached else why_slow
            return plain, f"{_type(model)} acts and trains by the plain engine ({problem}): exact, but {cost}" if problem else ""
    raise _unsupported(model, plain_problem, "use a causal language model")


def _disagreement(forward: FastForward | PlainForward, references: Sequence[_Reference]) -> str:
    """What a forward computes otherwise than uncached passes do, or an empty text."""
    for reference in references:
        same = forward if reference.model is forward.model else Choice.of(forward, "").forward(reference.model)
        if isinstance(same, FastForward):
            same.patience = 0
        problem = reference.disagreement(same)
        forward.split_head &= same.split_head
        if problem:
            return problem
    return ""


def _other_layers(model: PreTrainedModel | PeftModel) -> str:
    """The kinds of layers that its configuration names and that are not softmax attention, in a few words; empty without any."""
    kinds = set(base_of(model).config.get_text_config().to_dict().get("layer_types") or ())
    other = sorted(kinds - {"full_attention", "sliding_attention", "chunked_attention", "attention"})
    return f"it has {', '.join(other)} layers" if other else ""


def _unsupported(model: PreTrainedModel | PeftModel, problem: str, advice: str) -> UserError:
    return UserError(f"models of type {_type(model)} are not supported ({problem}): {advice}")


def _type(model: PreTrainedModel | PeftModel) -> str:
    return repr(getattr(base_of(model).config, "model_type", "unknown"))


def _name(model: PreTrainedModel | PeftModel) -> str:
    return str(base_of(model).config._name_or_path or getattr(base_of(model).config, "model_type", "the model"))


def _size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# ---- the stored result


def _result_file(model: PreTrainedModel | PeftModel, kind: EngineName, at_least: int) -> Path:
    """The file with the result for these weights and versions on this processor.

    A few numbers of each weight identify it, so that no gigabytes are hashed. LoRA matrices count by name and shape alone.
    """
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        first = [] if "lora_" in name else weight.detach().flatten()[:8].float().tolist()
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype} {weight.device.type} {first}".encode())
    device = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else torch.backends.cpu.get_cpu_capability()
    config = base_of(model).config.to_json_string(use_diff=False)
    versions = torch.__version__, transformers.__version__, peft.__version__, _own_source()
    digest.update(repr((kind, at_least, config, device, versions)).encode())
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "msgrpo_hub" / "engines" / f"{digest.hexdigest()[:32]}.json"


@cache
def _own_source() -> str:
    """A hash of the code that computes models."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read(stored: Path) -> Choice | None:
    try:
        return Choice(**json.loads(stored.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


# ---- a float32 copy of the first layers


def _miniature(model: PreTrainedModel | PeftModel, prompt: TokenIds) -> tuple[PreTrainedModel | PeftModel, TokenIds] | None:
    """A float32 copy of the first layers of a model, at least one of each kind, and the prompt in its vocabulary.

    The vocabulary is cut to the tokens of the prompt where embedding and head are plain. None where the layers cannot be told
    from the rest, or the copy would be too large: quantised models, models that also see.
    """
    base = base_of(model)
    text = base.config.get_text_config()
    layers = next((m for m in base.modules() if isinstance(m, nn.ModuleList) and len(m) == text.num_hidden_layers), None)
    if layers is None or getattr(base, "is_quantized", False) or getattr(base, "hf_device_map", None):
        return None
    kinds = [_kind(layer, text.to_dict(), index) for index, layer in enumerate(layers)]
    count = max(2, 1 + max(kinds.index(kind) for kind in kinds)) if _size(model) >= SMALL else len(layers)
    memo: dict[int, Any] = {}
    tokens = sorted(set(prompt))
    embedding: Any = base.get_input_embeddings()
    head: Any = base.get_output_embeddings()
    cut = isinstance(embedding, nn.Embedding) and type(head) is nn.Linear and head.bias is None
    if cut:
        for weight in (embedding.weight, head.weight):
            memo[id(weight)] = nn.Parameter(weight.detach()[tokens].float(), requires_grad=False)
    kept = sum(p.numel() for p in base.parameters() if id(p) not in memo) - sum(map(_size, layers[count:]))
    if 4 * kept > LARGEST_COPY:
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


def _kind(layer: nn.Module, config: dict[str, Any], index: int) -> tuple[object, ...]:
    """What distinguishes the computation of a layer from that of others: its modules, and what the configuration says of it."""
    modules = tuple((name, type(part)) for name, part in layer.named_modules())
    said = [value[index] for value in config.values() if isinstance(value, list) and len(value) == config["num_hidden_layers"]]
    return (*modules, repr(said), getattr(getattr(layer, "self_attn", None), "sliding_window", None))


# ---- the comparison


@dataclass(frozen=True)
class _Batch:
    """Sequences as `token_log_probs` takes them."""

    prefix: TokenIds
    trees: list[TokenTree]
    slots: Tensor
    targets: Tensor


@dataclass(frozen=True)
class _Reference:
    """Sequences and their log-probabilities by uncached passes.

    The sequences are p·a·b, p·b·a and q·a·b: q is a beginning of the prompt p, a and b are tokens.
    """

    model: PreTrainedModel | PeftModel
    sequences: tuple[TokenIds, TokenIds, TokenIds]
    log_p: Tensor
    """(3, 3, V) of each sequence: after p or q, after one token more, and after two."""

    @classmethod
    def of(cls, model: PreTrainedModel | PeftModel, prompt: TokenIds, at_least: int) -> _Reference:
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
            log_p = _uncached(model, sequences, "eager")  # some versions of transformers skip softcapping in others
        except _ERRORS as error:
            raise _unsupported(
                model,
                f"its own forward pass ends with {_one_line(error)}",
                "use another version of transformers, or of the model",
            ) from error
        if log_p.isnan().any() and model.dtype == torch.float16:
            raise _unsupported(model, "in float16 its own forward pass overflows", "use --dtype bfloat16 or float32")
        if log_p.isnan().any():
            raise not_finite()
        reference = cls(model, sequences, log_p)
        if problem := reference.differs(_difference(log_p[0, 0], log_p[1, 0])):
            raise _unsupported(
                model, f"later tokens change what comes before by {problem}: it is not causal", "use a causal language model"
            )
        return reference

    def differs(self, difference: float) -> str:
        """A difference as text if it is more than rounding, or an empty text.

        In float32 a mean of 5e-4 nats is. In 16 bits it is a multiple of the type's precision, or of what two implementations of
        the model's own attention differ by, if that is more.
        """
        allowed = max(5e-4, 16 * torch.finfo(self.model.dtype).eps)
        if difference <= allowed:
            return ""
        with suppress(*_ERRORS):
            other = _uncached(self.model, self.sequences, "sdpa")
            allowed = max(allowed, OWN_ROUNDING * max(map(_difference, other.flatten(0, 1), self.log_p.flatten(0, 1))))
        return "" if difference <= allowed else f"{difference:.2g}"

    def disagreement(self, forward: FastForward | PlainForward) -> str:
        """What this forward computes otherwise than uncached passes do, or an empty text."""
        errors: tuple[type[Exception], ...] = (*_ERRORS, *kernel_errors())
        with ExitStack() as acting:  # entered once, since some weights are copied to another layout inside
            for what, check in (("acting", self._acting), ("scoring", self._scoring), ("training", self._training)):
                try:
                    if what == "acting":
                        acting.enter_context(forward.acting())
                    elif what == "training":
                        acting.close()
                    difference = check(forward)
                except UserError as error:
                    return str(error)
                except errors as error:
                    return f"{what} does not compute with shared keys and values: {_one_line(error)}"
                if problem := self.differs(difference):
                    return f"log-probabilities of {what} differ by {problem}"
        return ""

    def _acting(self, forward: FastForward | PlainForward) -> float:
        """Prompts of two lengths, where the forward pads them, and rows that fork. The largest difference of a distribution."""
        prompts, prompt_of = [self.sequences[0][:-2], self.sequences[2][:-2]], (0, 0, 1)
        worst = 0.0
        forward.share(prompts)
        for batch in forward.batches(prompts, len(prompts)):
            logits, rows = forward.prefill([prompts[i] for i in batch])
            mine = [k for k, prompt in enumerate(prompt_of) if prompt in batch]
            forked = [batch.index(prompt_of[k]) for k in mine]
            rows.select(np.array(forked))
            steps = [logits[forked]]
            steps += [rows.step(np.array([self.sequences[k][place] for k in mine])) for place in (-2, -1)]
            ours = torch.log_softmax(torch.stack(steps, 1).float(), -1)
            worst = max(worst, *map(_difference, ours.flatten(0, 1), self.log_p[mine].flatten(0, 1)))
        return worst

    def _scoring(self, forward: FastForward | PlainForward) -> float:
        pairs = [(sequence[:-2], sequence[-2:]) for sequence in self.sequences]
        scored: dict[int, list[float]] = {}
        forward.share([prompt for prompt, _ in pairs])
        for batch in forward.batches([prompt for prompt, _ in pairs], 3):
            scored |= zip(batch, forward.score([pairs[k] for k in batch]), strict=True)
        return _difference(torch.tensor([scored[k] for k in range(3)]), self._of_tokens().cpu())

    def _training(self, forward: FastForward | PlainForward) -> float:
        tree = isinstance(forward, FastForward)
        batch = self._as_tree() if tree else self._as_rows()
        try:
            ours = token_log_probs(self.model, batch, 1.0, tree=tree)
        except (AttributeError, KeyError, TypeError):  # its head needs more of its body than the last hidden states
            forward.split_head = False
            ours = token_log_probs(self.model, batch, 1.0, tree=tree, split_head=False)
        return _difference(ours, self._of_tokens().flatten())

    def _of_tokens(self) -> Tensor:
        """(3, 2) log p of the last two tokens of each sequence."""
        last = torch.tensor([sequence[-2:] for sequence in self.sequences], device=self.log_p.device)
        return self.log_p[:, :2].gather(2, last[..., None])[..., 0]

    def _as_tree(self) -> _Batch:
        cut = max(1, len(self.sequences[2]) // 2)
        tree = build_tree([sequence[cut:] for sequence in self.sequences])
        paths = [[*range(cut), *(cut + path)] for path in tree.paths]
        return _Batch(self.sequences[0][:cut], [tree], *_last_two(paths, self.sequences))

    def _as_rows(self) -> _Batch:
        trees = [build_tree([sequence]) for sequence in self.sequences]
        width = max(map(len, trees))
        paths = [(row * width + tree.paths[0]).tolist() for row, tree in enumerate(trees)]
        return _Batch((), trees, *_last_two(paths, self.sequences))


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _last_two(paths: Sequence[Sequence[int]], sequences: Sequence[TokenIds]) -> tuple[Tensor, Tensor]:
    """The slots that predict the last two tokens of each sequence, and these tokens."""
    slots = [slot for path in paths for slot in path[-3:-1]]
    return torch.tensor(slots), torch.tensor([token for sequence in sequences for token in sequence[-2:]])


def _difference(ours: Tensor, expected: Tensor) -> float:
    """The mean absolute difference of log-probabilities, in nats; infinite values that agree count as equal.

    The largest would be that of the least likely token of the vocabulary, which rounding in 16 bits moves by more than a nat.
    """
    difference = (ours.float() - expected.float()).abs()
    return float(torch.where(ours == expected, 0.0, difference).mean())


def _uncached(model: PreTrainedModel | PeftModel, sequences: Sequence[TokenIds], attention: str) -> Tensor:
    """(sequences, 3, V) next-token log-probabilities at the last three positions, float32; equal lengths are one batch."""
    keep = {"logits_to_keep": 3} if "logits_to_keep" in inspect.signature(base_of(model).forward).parameters else {}
    found: dict[int, Tensor] = {}
    with eager(model) if attention == "eager" else attention_of(model, attention):
        for length in {len(sequence) for sequence in sequences}:
            batch = [k for k, sequence in enumerate(sequences) if len(sequence) == length]
            ids = torch.tensor([sequences[k] for k in batch], device=model.device)
            logits = model(input_ids=ids, use_cache=False, **keep).logits[:, -3:]
            found |= zip(batch, torch.log_softmax(logits.float(), -1), strict=True)
    return torch.stack([found[k] for k in range(len(sequences))])


@contextmanager
def eager(model: PreTrainedModel | PeftModel) -> Iterator[None]:
    """Eager attention where the model can be switched to it; its own otherwise."""
    with ExitStack() as stack:
        with suppress(UserError, ValueError):
            stack.enter_context(attention_of(model, "eager"))
        yield
