"""The context of a model: its number of positions, and the check that a prompt and a reply fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from transformers import PretrainedConfig

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.encoding import PromptEncoder

_POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "max_seq_length", "seq_length")
"""Settings that hold the number of positions, by family."""


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


class PromptLength(NamedTuple):
    """The length of a prompt whose history has replies of unknown length."""

    fixed: int
    """Tokens without the past replies."""
    replies: int
    """Past replies in the prompt."""


def prompt_lengths(encoder: PromptEncoder, prompts: Sequence[Prompt]) -> list[PromptLength]:
    """The length of each prompt; its history holds the short replies of a scripted player."""
    past = [[text for role, text in prompt.contents if role == "assistant"] for prompt in prompts]
    tokens = encoder.count(text for texts in past for text in texts)
    return [
        PromptLength(len(ids) - sum(tokens[text] for text in texts), len(texts))
        for ids, texts in zip(encoder.encode(prompts), past, strict=True)
    ]


def check_context(
    encoder: PromptEncoder, prompts: Sequence[Prompt], lengths: Sequence[PromptLength], limit: int | None, reply: int, name: str
) -> None:
    """Checks that prompts and replies of full length, past replies included, fit into the context of a model.

    Args:
        encoder: of the model's tokenizer.
        prompts: the prompts.
        lengths: their lengths.
        limit: number of positions of the model; None if it has no limit.
        reply: largest number of tokens per reply.
        name: of the model, for the message.

    Raises:
        UserError: the context is too short; the message names a remedy.
    """
    fixed, replies = max(lengths, default=PromptLength(0, 0), key=lambda length: length.fixed + length.replies * reply)
    if limit is None or not lengths or fixed + (replies + 1) * reply <= limit:
        return
    prompt = prompts[lengths.index((fixed, replies))]
    fits = (limit - fixed) // (replies + 1)
    past = f" and {replies} past replies" if replies else ""
    shortest = encoder.count(prompt.prompt_format.reply(action) for action in prompt.game.actions)
    if fits > max(shortest.values()):  # with an end token
        raise UserError(
            f"a prompt of {fixed} tokens{past} and a reply of up to {reply} do not fit into the {limit} positions of {name!r}: "
            f"expected replies of at most {fits} tokens (--max-new-tokens {fits}) or a model with a longer context"
        )
    shown = prompt.prompt_format
    less = f", or a prompt format with less history than {shown.name!r} (--prompt-format)" if shown.history else ""
    raise UserError(
        f"a prompt of {fixed} tokens{past} leaves no room for a reply in the {limit} positions of {name!r}: "
        f"expected a model with a longer context{less}"
    )
