"""The tokenizer of the built-in base: lossless for every text, short for the texts of the games, equal after loading."""

from __future__ import annotations

import functools
import hashlib
import tempfile
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase, Qwen2Config

from benchmark.pocket.tasks import PLAY_REQUEST, GameVariant, pretraining_tasks, random_state
from benchmark.pocket.tokenizer import PHRASES, SPECIAL, build_tokenizer
from msgrpo_hub.agent import build_prompt
from msgrpo_hub.agent.prompt_formats import USER_TEXT, system_text
from msgrpo_hub.downloads.names import pocket_path
from msgrpo_hub.games import GAMES, make_game, stream
from msgrpo_hub.models.encoding import PromptEncoder

SIZE = 600


def task_texts() -> list[str]:
    texts = []
    for number, game in enumerate(GAMES.values()):
        rng = np.random.default_rng(number)
        for _ in range(12):
            state = random_state(game, rng)
            texts += [system_text(game), USER_TEXT.format(game.observe(state), PLAY_REQUEST)]
            texts += [reply for task in pretraining_tasks(GameVariant(game, game.actions), state, rng) for reply in task.replies]
    return texts


TEXTS = task_texts()
BUILT = build_tokenizer(TEXTS, SIZE)


@functools.cache
def loaded() -> PreTrainedTokenizerBase:
    """Loaded from the folder of a Qwen2, where transformers replaces our pre-tokenizer by Qwen's own."""
    with tempfile.TemporaryDirectory() as folder:
        BUILT.save_pretrained(folder)
        Qwen2Config().save_pretrained(folder)
        return AutoTokenizer.from_pretrained(folder)


pieces = st.sampled_from(
    [*SPECIAL, *PHRASES, "<|endoftext|>", "Left", " Left", "(1, 2)", " (1, 2)", "@", " . .", "\n", "  ", "é", "Ġ", "\r\n"]
)
any_text = st.one_of(st.text(), st.lists(st.one_of(pieces, st.text(max_size=3)), max_size=12).map("".join))


@given(text=any_text)
@settings(max_examples=300)
def test_decoding_restores_every_text(text: str) -> None:
    text = unicodedata.normalize("NFC", text)  # as transformers does for a Qwen2
    ids = BUILT(text)["input_ids"]
    assert BUILT.decode(ids) == text
    assert loaded()(text)["input_ids"] == ids
    assert loaded().decode(ids) == text


def test_loading_keeps_vocabulary_template_and_end() -> None:
    assert loaded().get_vocab() == BUILT.get_vocab()
    assert sorted(BUILT.get_vocab().values()) == list(range(len(BUILT)))
    assert SIZE - 60 < len(BUILT) <= SIZE  # a piece of one character may equal a byte
    assert loaded().chat_template == BUILT.chat_template
    assert loaded().eos_token == "<|end|>"
    assert loaded().pad_token == "<|pad|>"


def test_special_tokens_and_tags_are_one_token_each_and_only_special_ones_are_hidden() -> None:
    for piece in (*SPECIAL, *PHRASES):
        assert loaded().decode(loaded()(piece)["input_ids"]) == piece
        assert len(loaded()(piece)["input_ids"]) == 1
    ids = loaded()("<think>x</think><action>Up</action><|end|>")["input_ids"]
    assert loaded().decode(ids, skip_special_tokens=True) == "<think>x</think><action>Up</action>"


@pytest.mark.parametrize(
    ("game_id", "length", "digest"),
    [("FrozenLake-NotSlippery-v1", 153, "92baac751de7316f"), ("Snake-Standard-v1", 228, "e5adf74f23ecc338")],
)
def test_the_built_in_base_reads_its_prompts_as_the_tokens_that_it_was_trained_on(game_id: str, length: int, digest: str) -> None:
    """The request is one token, so its words can change without other weights."""
    tokenizer = AutoTokenizer.from_pretrained(pocket_path())
    game = make_game(game_id)
    prompt = build_prompt(game, game.initial_state(stream(0, "initial_state")))
    [ids] = PromptEncoder(tokenizer).encode([prompt])
    [request] = tokenizer(PLAY_REQUEST)["input_ids"]
    assert ids.count(request) == 1
    assert prompt.user.endswith(PLAY_REQUEST)
    assert (len(ids), hashlib.sha256(str(list(ids)).encode()).hexdigest()[:16]) == (length, digest)
