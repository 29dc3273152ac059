"""The tokenizer of the built-in base: words, cells, up to three grid symbols per token, bytes for the rest.

The tokenizer is a byte-level BPE file without merges. Every piece of the vocabulary is an added token: the longest known
piece wins, other text falls back to bytes, and decoding is lossless for every text in Unicode's form NFC. Added tokens also
survive loading, whereas transformers replaces the pre-tokenizer of any `qwen2` model by Qwen's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from benchmark.pocket.tasks import PLAY_REQUEST

SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
PHRASES = (PLAY_REQUEST, "<think>", "</think><action>", "<action>", "</action>")
CHAT_TEMPLATE = (
    "{%- for message in messages -%}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)

_SYMBOL = r"[.@#XxOGABF]"
_PIECE = re.compile(
    "|".join(
        (
            r"Current Observation:\n",
            r"\n?[A-Z][a-z]+(?: [a-z]+)?:\n?",  # a label, as in "Your head:"
            r" ?\([0-9]+, [0-9]+\)",  # a cell
            rf"(?: |(?<![A-Za-z0-9)])){_SYMBOL}(?: {_SYMBOL}(?![A-Za-z])){{0,2}}(?![A-Za-z:,])\n?",  # up to three grid symbols
            r" ?[A-Za-z]+",
            r" ?-?[0-9]+(?:[./][0-9]+)?",
            r"[.,;:]\n?",
            r"\s|[^\s]",
        )
    )
)


def build_tokenizer(texts: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """A tokenizer with `size` tokens: the 256 bytes, the most frequent pieces of `texts`, tags and special tokens."""
    phrases = re.compile("|".join(map(re.escape, (*SPECIAL, *PHRASES))))
    counts = Counter(piece for text in texts for part in phrases.split(text) for piece in _PIECE.findall(part))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    frequent = sorted(counts, key=lambda piece: (-counts[piece], piece))
    pieces = [*PHRASES, *frequent[: size - len(alphabet) - len(SPECIAL) - len(PHRASES)]]
    tokenizer = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(piece, special=False, normalized=False) for piece in pieces])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<|pad|>",  # never produced; without it transformers adds Qwen's own
        pad_token="<|pad|>",
        eos_token="<|end|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
