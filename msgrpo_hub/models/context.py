"""The context of a model: its number of positions, and the check that a prompt and a reply fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def prompt_lengths(encoder: PromptEncoder, prompts: Sequence[Prompt]) -> list[tuple[int, int]]:
    """Of each prompt, the tokens without the past replies in its history, and the number of these replies."""
    lengths = []
    for prompt, ids in zip(prompts, encoder.encode(prompts), strict=True):
        past = [text for role, text in prompt.contents if role == "assistant"]
        encoded = encoder.tokenizer(past, add_special_tokens=False)["input_ids"] if past else []
        lengths.append((len(ids) - sum(map(len, encoded)), len(past)))
    return lengths


def check_context(
    encoder: PromptEncoder, prompts: Sequence[Prompt], limit: int | None, reply: int, name: str, known: bool = True
) -> None:
    """Checks that prompts and replies of full length fit into the context of a model.

    Args:
        encoder: of the model's tokenizer.
        prompts: the prompts.
        limit: number of positions of the model; None if it has no limit.
        reply: largest number of tokens per reply.
        name: of the model, for the message.
        known: whether past replies in the prompts are the real ones, or stand for replies of full length.

    Raises:
        UserError: the context is too short; the message names a remedy.
    """
    if limit is None or not prompts:
        return
    lengths = [(len(ids), 0) for ids in encoder.encode(prompts)] if known else prompt_lengths(encoder, prompts)
    fixed, replies = longest = max(lengths, key=lambda length: length[0] + length[1] * reply)
    if fixed + (replies + 1) * reply <= limit:
        return
    prompt, fits = prompts[lengths.index(longest)], (limit - fixed) // (replies + 1)
    shown, past = prompt.prompt_format, f" and {replies} past replies" if replies else ""
    remedy = "a model with a longer context"
    shortest = encoder.tokenizer([shown.reply(action) for action in prompt.game.actions], add_special_tokens=False)["input_ids"]
    if fits > max(map(len, shortest)):  # with an end token
        remedy = f"replies of at most {fits} tokens (--max-new-tokens {fits}) or {remedy}"
    elif shown.history:
        remedy += f", or a prompt format with less history than {shown.name!r} (--prompt-format)"
    raise UserError(
        f"a prompt of {fixed} tokens{past} and a reply of up to {reply} do not fit into the {limit} positions of {name!r}: "
        f"expected {remedy}"
    )
