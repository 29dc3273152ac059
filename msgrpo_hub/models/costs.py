"""Bytes and operations of a decoder from its shape: the one model behind `--estimate`, the presets' cards and the sizing page.

Operations are those of one multiplication and one addition each, as vendors count them. What is fitted to measurements says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PROGRAM_BYTES = 0.45e9
"""Python, torch and what they load: measured on a CPU. A GPU's own context takes about as much."""

ACTIVATIONS = 4.3
"""Numbers kept for the backward pass, per token, layer and (width + inner width): fitted (benchmark/throughput/cards.py)."""

FLOAT32 = 4
"""Bytes of a number that the adapter computes with, and of a logit."""

CHUNK_BYTES = 2**28
"""Of the logits that are there at a time in training (`log_probs.CHUNK_BYTES`)."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The shape of a decoder with grouped-query attention and a gated feed-forward layer."""

    layers: int
    width: int
    inner: int
    """Width of the feed-forward layers."""
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    tied: bool
    """Whether the output head is the embedding."""

    @property
    def linear(self) -> int:
        """Weights of the linear layers, without embedding and head."""
        attention = self.width * self.head_width * 2 * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.width * self.inner)

    @property
    def weights(self) -> int:
        """All weights, but for biases and norms.

        >>> round(QWEN["3B"].weights / 1e9, 2)
        3.09
        """
        return self.linear + (1 if self.tied else 2) * self.vocabulary * self.width

    def lora(self, rank: int) -> int:
        """Weights of LoRA on all linear layers."""
        attention = 2 * (self.width + self.head_width * self.heads) + 2 * (self.width + self.head_width * self.kv_heads)
        return self.layers * rank * (attention + 3 * (self.width + self.inner))

    def cache_bytes(self, tokens: float, each: int) -> float:
        """Bytes of the keys and values of so many tokens, each number of so many bytes."""
        return 2.0 * self.layers * self.kv_heads * self.head_width * tokens * each

    def forward(self, tokens: float, context: float, predicting: float) -> float:
        """Operations of a forward pass.

        Args:
            tokens: that pass the layers.
            context: that a token attends to, in the mean.
            predicting: tokens whose logits are computed.
        """
        attention = 4.0 * self.layers * self.heads * self.head_width * context * tokens
        return 2.0 * self.linear * tokens + attention + 2.0 * self.vocabulary * self.width * predicting

    def training_bytes(self, tokens: float, predicting: float, each: int, *, checkpointed: bool) -> float:
        """Bytes of what the backward pass needs.

        Args:
            tokens: in one pass.
            predicting: those whose logits are computed.
            each: bytes of a number of the base; what LoRA reads is float32 in any case.
            checkpointed: whether only the layers' inputs are kept, and the rest computed again, a layer at a time.
        """
        inside = ACTIVATIONS * (self.width + self.inner) * FLOAT32
        of_token = self.layers * self.width * each + inside if checkpointed else self.layers * inside
        logits = 3 * min(CHUNK_BYTES, predicting * self.vocabulary * FLOAT32)  # they, their softmax and their gradient
        return tokens * of_token + logits

    def adapter_bytes(self, rank: int) -> int:
        """Bytes of the adapter, its gradient and the two moments of AdamW."""
        return 4 * FLOAT32 * self.lora(rank)


def shape_of(config: Any) -> Shape | None:
    """The shape that a configuration of transformers describes; None for one of another kind."""
    text = config.get_text_config()
    try:
        return Shape(
            layers=int(text.num_hidden_layers),
            width=int(text.hidden_size),
            inner=int(text.intermediate_size),
            heads=int(text.num_attention_heads),
            kv_heads=int(text.num_key_value_heads),
            head_width=int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads),
            vocabulary=int(text.vocab_size),
            tied=bool(text.tie_word_embeddings),
        )
    except (AttributeError, TypeError):
        return None


def _qwen(layers: int, width: int, inner: int, heads: int, kv_heads: int, *, tied: bool = True) -> Shape:
    vocabulary = 151936 if tied else 152064
    return Shape(
        layers=layers,
        width=width,
        inner=inner,
        heads=heads,
        kv_heads=kv_heads,
        head_width=width // heads,
        vocabulary=vocabulary,
        tied=tied,
    )


QWEN = {
    "0.5B": _qwen(24, 896, 4864, 14, 2),
    "1.5B": _qwen(28, 1536, 8960, 12, 2),
    "3B": _qwen(36, 2048, 11008, 16, 2),
    "7B": _qwen(28, 3584, 18944, 28, 4, tied=False),
}
"""Qwen2.5 by its size, as published."""
