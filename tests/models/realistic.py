"""Chat templates in the style of well-known models, shortened to what decides the text of a prompt."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedTokenizerFast

from benchmark.pocket.tokenizer import build_tokenizer
from msgrpo_hub.agent.prompt_formats import conversation

TEMPLATES = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "templates").glob("*.jinja"))}

DIALOGUE = conversation("The rules.", [("First", "<think>Hm.</think><action>Up</action>")], "Second", "Act!")
"""What a prompt format with history asks."""


def with_template(template: str) -> PreTrainedTokenizerFast:
    """A tokenizer with a chat template and the special tokens that it writes."""
    tokenizer = build_tokenizer([], 300)
    tokenizer.bos_token, tokenizer.chat_template = "<|pad|>", template
    return tokenizer


def write_template(folder: Path, template: str) -> Path:
    (folder / "chat_template.jinja").write_text(template)
    return folder
