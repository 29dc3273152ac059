"""Which forward computes a model exactly: a comparison with uncached passes of the model's own code.

A recurrent state passes a check of one prompt and fails on a padded batch or a forked row, and a window is not seen by a
prompt shorter than it. The comparison therefore has two prompts of different lengths, rows that fork, a tree of training,
and prompts longer than the smallest window where the window matters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor
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

_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError, RuntimeError, NotImplementedError, AssertionError)
"""Errors of models that do not fit a forward."""

_CHOSEN: WeakKeyDictionary[torch.nn.Module, dict[tuple[EngineName, bool], Choice]] = WeakKeyDictionary()
"""What was chosen for a model, with and without regard to its windows."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """A forward without its model, so that it can be remembered for as long as the model lives."""

    cached: bool | None
    """Of the plain forward; None for the fast one."""
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


def choose_forward(
    model: PreTrainedModel | PeftModel, kind: EngineName, prompt: TokenIds, at_least: int
) -> tuple[FastForward | PlainForward, str]:
    """The forward for a model, and one line that says why if it is the plain one though the fast one was allowed.

    A model is compared once, and the log gets the line once.

    Args:
        model: a causal language model.
        kind: `fast`, `plain`, or `auto`.
        prompt: a prompt to compare with.
        at_least: the length that the longest compared prompt must have.

    Raises:
        UserError: no allowed forward agrees with the model's uncached passes.
    """
    known = _CHOSEN.setdefault(model, {})
    key = kind, at_least > 0
    if key not in known:
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                known[key] = Choice.of(*_chosen(model, kind, _Reference.of(model, prompt, at_least)))
        finally:
            model.train(training)
        if known[key].why:
            log.warning(known[key].why)
    return known[key].forward(model), known[key].why


def _chosen(
    model: PreTrainedModel | PeftModel, kind: EngineName, reference: _Reference
) -> tuple[FastForward | PlainForward, str]:
    problem = f"{where} has a hook" if kind != "plain" and is_known(model) and (where := hooked(model)) else ""
    if kind != "plain":
        for passes in passes_of(model):
            fast = FastForward(model, passes)
            fast.patience = 0
            refused, problem = problem, _other_layers(model) or reference.disagreement(fast)
            if not problem:
                if refused:
                    log.warning("%s acts by %s passes, since faster ones failed: %s", _type(model), passes, refused)
                return fast, ""
        if kind == "fast":
            raise _unsupported(model, f"the fast engine cannot compute it exactly: {problem}", "use --engine auto")
    for cached in (True, False):
        plain = PlainForward(model, cached)
        plain_problem = reference.disagreement(plain)
        if not plain_problem:
            why_slow = "many times slower, since its cache is inexact and each token computes all before it"
            cost = "several times slower" if cached else why_slow
            return plain, f"{_type(model)} acts and trains by the plain engine ({problem}): exact, but {cost}" if problem else ""
    raise _unsupported(model, plain_problem, "use a causal language model")


def _other_layers(model: PreTrainedModel | PeftModel) -> str:
    """The kinds of layers that its configuration names and that are not softmax attention, in a few words; empty without any."""
    kinds = set(base_of(model).config.get_text_config().to_dict().get("layer_types") or ())
    other = sorted(kinds - {"full_attention", "sliding_attention", "chunked_attention", "attention"})
    return f"it has {', '.join(other)} layers" if other else ""


def _unsupported(model: PreTrainedModel | PeftModel, problem: str, advice: str) -> UserError:
    return UserError(f"models of type {_type(model)} are not supported ({problem}): {advice}")


def _type(model: PreTrainedModel | PeftModel) -> str:
    return repr(getattr(base_of(model).config, "model_type", "unknown"))


@dataclass(frozen=True)
class _Batch:
    """Sequences as `token_log_probs` takes them."""

    prefix: TokenIds
    trees: list[TokenTree]
    slots: Tensor
    targets: Tensor


@dataclass(frozen=True)
class _Reference:
    """Sequences and their log-probabilities by uncached passes, one sequence at a time.

    The sequences are p·a·b, p·b·a and q·a·b: q is a beginning of the prompt p, a and b are tokens.
    """

    model: PreTrainedModel | PeftModel
    sequences: tuple[TokenIds, TokenIds, TokenIds]
    log_p: list[Tensor]
    """(3, V) of each sequence: after p or q, after one token more, and after two."""
    tolerance: float

    @classmethod
    def of(cls, model: PreTrainedModel | PeftModel, prompt: TokenIds, at_least: int) -> _Reference:
        """The reference of a prompt, repeated to the given length.

        Raises:
            UserError: the model is not causal, or returns NaN.
        """
        long = (prompt * (at_least // len(prompt) + 1))[: max(at_least, len(prompt))]
        short = long[: max(1, len(long) * 2 // 3)]
        a, b = long[0], long[-1]
        sequences = (*long, a, b), (*long, b, a), (*short, a, b)
        try:
            with eager(model):  # some versions of transformers skip softcapping in other implementations
                log_p = [_uncached(model, sequence, slice(-3, None)) for sequence in sequences]
                early = [_uncached(model, sequence, slice(len(short) - 1, len(short))) for sequence in (long, short)]
        except _ERRORS as error:
            raise _unsupported(
                model,
                f"its own forward pass ends with {_one_line(error)}",
                "use another version of transformers, or of the model",
            ) from error
        if any(part.isnan().any() for part in log_p):
            raise not_finite()
        tolerance = 1e-3 if model.dtype == torch.float32 else 0.5
        reference = cls(model, sequences, log_p, tolerance)
        if (difference := _difference(*early)) > tolerance:
            raise _unsupported(
                model,
                f"later tokens change what comes before by {difference:.2g}: it is not causal",
                "use a causal language model",
            )
        return reference

    def disagreement(self, forward: FastForward | PlainForward) -> str:
        """What this forward computes otherwise than uncached passes do, or an empty text."""
        errors: tuple[type[Exception], ...] = (*_ERRORS, *kernel_errors())
        for what, check in (("acting", self._acting), ("scoring", self._scoring), ("training", self._training)):
            try:
                difference = check(forward)
            except UserError as error:
                return str(error)
            except errors as error:
                return f"{what} does not compute with shared keys and values: {_one_line(error)}"
            if not difference <= self.tolerance:
                return f"log-probabilities of {what} differ by {difference:.2g}"
        return ""

    def _acting(self, forward: FastForward | PlainForward) -> float:
        """Prompts of two lengths, where the forward pads them, and rows that fork."""
        prompts, prompt_of = [self.sequences[0][:-2], self.sequences[2][:-2]], (0, 0, 1)
        worst = 0.0
        with forward.acting():
            forward.share(prompts)
            for batch in forward.batches(prompts, len(prompts)):
                logits, rows = forward.prefill([prompts[i] for i in batch])
                mine = [k for k, prompt in enumerate(prompt_of) if prompt in batch]
                forked = [batch.index(prompt_of[k]) for k in mine]
                rows.select(np.array(forked))
                steps = [logits[forked]]
                steps += [rows.step(np.array([self.sequences[k][place] for k in mine])) for place in (-2, -1)]
                ours = torch.log_softmax(torch.stack(steps, 1).float(), -1)
                worst = max(worst, *(_difference(ours[row], self.log_p[k]) for row, k in enumerate(mine)))
        return worst

    def _scoring(self, forward: FastForward | PlainForward) -> float:
        pairs = [(sequence[:-2], sequence[-2:]) for sequence in self.sequences]
        worst = 0.0
        with forward.acting():
            forward.share([prompt for prompt, _ in pairs])
            for batch in forward.batches([prompt for prompt, _ in pairs], 3):
                for k, scores in zip(batch, forward.score([pairs[k] for k in batch]), strict=True):
                    expected = self.log_p[k][:2].gather(1, _column(self.sequences[k][-2:], self.log_p[k].device))
                    worst = max(worst, _difference(torch.tensor(scores), expected[:, 0].cpu()))
        return worst

    def _training(self, forward: FastForward | PlainForward) -> float:
        tree = isinstance(forward, FastForward)
        batch = self._as_tree() if tree else self._as_rows()
        try:
            ours = token_log_probs(self.model, batch, 1.0, tree=tree)
        except (AttributeError, KeyError, TypeError):  # its head needs more of its body than the last hidden states
            forward.split_head = False
            ours = token_log_probs(self.model, batch, 1.0, tree=tree, split_head=False)
        expected = [
            log_p[:2].gather(1, _column(sequence[-2:], log_p.device))[:, 0]
            for sequence, log_p in zip(self.sequences, self.log_p, strict=True)
        ]
        return _difference(ours, torch.cat(expected))

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


def _column(tokens: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(tokens, device=device)[:, None]


def _difference(ours: Tensor, expected: Tensor) -> float:
    """The largest absolute difference; infinite values that agree count as equal."""
    difference = (ours.float() - expected.float()).abs()
    return float(torch.where(ours == expected, 0.0, difference).max())


def _uncached(model: PreTrainedModel | PeftModel, sequence: TokenIds, positions: slice) -> Tensor:
    """(positions, V) next-token log-probabilities, float32."""
    ids = torch.tensor([sequence], device=model.device)
    return torch.log_softmax(model(input_ids=ids, use_cache=False).logits[0, positions].float(), -1)


@contextmanager
def eager(model: PreTrainedModel | PeftModel) -> Iterator[None]:
    """Eager attention where the model can be switched to it; its own otherwise."""
    with ExitStack() as stack:
        with suppress(UserError, ValueError):
            stack.enter_context(attention_of(model, "eager"))
        yield
