"""The context of a model: its number of positions, and the check that a prompt and a reply fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformers import PretrainedConfig

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.encoding import PromptEncoder

_POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "max_seq_length", "seq_length")
"""Settings that hold the number of positions, by family."""
_WINDOWS = ("sliding_window", "attention_chunk_size", "local_attention", "window_size", "attention_window_size")
"""Settings that limit how far back a layer attends."""


def context_limit(config: PretrainedConfig) -> int | None:
    """The number of positions of a model; None if any number works, as in state-space models and with ALiBi.

    A sliding window is not a limit: the model attends to its last positions and continues. Scaled rotary embeddings reach
    `factor` times the original number of positions, and the smallest number of all layer types counts.

    >>> from transformers import MambaConfig, Qwen2Config
    >>> yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    >>> [context_limit(config) for config in (Qwen2Config(rope_parameters=yarn), Qwen2Config(sliding_window=512), MambaConfig())]
    [131072, 32768, None]
    """
    text = config.get_text_config()
    stated = next((value for name in _POSITIONS if (value := getattr(text, name, None))), None)
    if stated is None or text.model_type == "rwkv" or getattr(text, "alibi", False):  # RWKV has only a training length
        return None
    parameters = getattr(text, "rope_parameters", None) or {}
    ropes = [value for value in parameters.values() if isinstance(value, Mapping)] or [parameters]  # by layer type, or one
    reached = [(rope.get("original_max_position_embeddings") or stated) * (rope.get("factor") or 1) for rope in ropes]
    return int(min(2**62, *(max(stated, reach) for reach in reached)))  # a factor may be infinite


@dataclass(frozen=True, kw_only=True)
class PromptLength:
    """The length of a prompt whose history has replies of unknown length."""

    fixed: int
    """Tokens without the past replies."""
    replies: int
    """Past replies in the prompt."""

    def tokens(self, reply: int) -> int:
        """Tokens of the prompt if each past reply has `reply` tokens."""
        return self.fixed + self.replies * reply


def prompt_lengths(encoder: PromptEncoder, prompts: Sequence[Prompt]) -> list[PromptLength]:
    """The length of each prompt; its history holds the short replies of a scripted player."""
    past = [[text for role, text in prompt.contents if role == "assistant"] for prompt in prompts]
    tokens = encoder.count({text for texts in past for text in texts})
    return [
        PromptLength(fixed=len(ids) - sum(tokens[text] for text in texts), replies=len(texts))
        for ids, texts in zip(encoder.encode(prompts), past, strict=True)
    ]


def check_expected(encoder: PromptEncoder, prompts: Sequence[Prompt], limit: int | None, max_new_tokens: int, name: str) -> None:
    """Checks that expected prompts and replies of full length, past replies included, fit into the context of a model.

    Args:
        encoder: of the model's tokenizer.
        prompts: prompts of scripted play.
        limit: number of positions of the model; None if it has no limit.
        max_new_tokens: largest number of tokens per reply.
        name: of the model, for the message.

    Raises:
        UserError: the context is too short; the message names a remedy.
    """
    if limit is None or not prompts:
        return
    lengths = prompt_lengths(encoder, prompts)
    index = max(range(len(prompts)), key=lambda i: lengths[i].tokens(max_new_tokens))
    prompt = prompts[index]
    replies = encoder.count({prompt.prompt_format.reply(action) for action in prompt.game.actions})
    _check(prompt, lengths[index], limit, max_new_tokens, name, shortest=1 + max(replies.values()))  # with an end token


def check_lengths(prompts: Sequence[Prompt], tokens: Sequence[int], limit: int | None, max_new_tokens: int, name: str) -> None:
    """Checks that encoded prompts leave room for a reply of full length. Arguments and errors as for `check_expected`."""
    if limit is None or not tokens or max(tokens) + max_new_tokens <= limit:
        return
    longest = max(range(len(prompts)), key=lambda i: tokens[i])
    _check(prompts[longest], PromptLength(fixed=tokens[longest], replies=0), limit, max_new_tokens, name, shortest=1)


def _check(prompt: Prompt, length: PromptLength, limit: int, max_new_tokens: int, name: str, *, shortest: int) -> None:
    """Raises `UserError` if the prompt and a reply do not fit; `shortest` is the length of the shortest useful reply."""
    if length.tokens(max_new_tokens) + max_new_tokens <= limit:
        return
    fits = (limit - length.fixed) // (length.replies + 1)
    past = f" and {length.replies} past replies" if length.replies else ""
    if fits >= shortest:
        raise UserError(
            f"a prompt of {length.fixed} tokens{past} and a reply of up to {max_new_tokens} do not fit into the {limit} "
            f"positions of {name!r}: expected replies of at most {fits} tokens (--max-new-tokens {fits}) or a "
            "model with a longer context"
        )
    shown = prompt.prompt_format
    less = f", or a prompt format with less history than {shown.name!r} (--prompt-format)" if shown.history else ""
    raise UserError(
        f"a prompt of {length.fixed} tokens{past} leaves no room for a reply in the {limit} positions of {name!r}: "
        f"expected a model with a longer context{less}"
    )


def smallest_window(config: PretrainedConfig) -> int:
    """The smallest number of positions that a layer of the model may attend to; 0 if its configuration names no window."""
    stated = config.get_text_config().to_dict()
    values = (stated.get(name) for name in _WINDOWS)
    return min((value for value in values if isinstance(value, int) and value > 0), default=0)
