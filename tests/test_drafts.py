"""What drafts could gain: steps and rows counted by hand."""

from __future__ import annotations

from pathlib import Path

from benchmark.throughput.drafts import Guesses, gains, steps
from benchmark.throughput.long_replies import TOKENS, long_player, long_thought
from msgrpo_hub.games import make_game, stream
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.players.identity import identify
from msgrpo_hub.players.settings import PlayerSettings

FIRST, AGAIN, OTHER = ((1,), (5, 6, 7, 8)), ((2,), (5, 6, 7, 8)), ((2,), (5, 6, 9, 8))


def test_without_guesses_every_token_but_the_first_is_a_step_of_its_own() -> None:
    assert steps([[FIRST], [AGAIN]], Guesses(), 0) == [1, 1, 1, 1, 1, 1]


def test_logits_that_are_known_are_not_computed_again() -> None:
    assert steps([[FIRST, FIRST], [FIRST]], Guesses(), 0) == [1, 1, 1]
    assert steps([[AGAIN, OTHER]], Guesses(), 0) == [1, 1, 2]


def test_right_guesses_save_steps_and_cost_rows() -> None:
    assert steps([[FIRST], [AGAIN]], Guesses(), 2) == [1, 1, 1, 1, 3]


def test_a_reply_goes_on_after_the_first_wrong_guess() -> None:
    assert steps([[FIRST], [OTHER]], Guesses(), 2) == [1, 1, 1, 1, 3, 1]


def test_guesses_follow_the_most_tokens_that_were_seen_last() -> None:
    guesses = Guesses()
    guesses.add((1, 2, 3, 4))
    guesses.add((9, 2, 3, 5))
    assert guesses.of((2, 3), 8) == (5,)
    assert guesses.of((1, 2, 3), 8) == (4,)
    assert guesses.of((9, 9), 8) == guesses.of((2,), 8) == ()


def test_a_gain_is_a_ratio_of_the_prices_of_all_steps() -> None:
    assert gains({0: [1, 1, 1, 1], 2: [3, 1]}, [1, 3], [2.0, 4.0]) == {2: 1.33}


def test_long_thoughts_have_48_tokens_in_words_that_the_built_in_base_knows() -> None:
    game, tokenizer = make_game("Snake-Standard-v1"), LanguageModel.from_pretrained("pocket").tokenizer
    states = [game.initial_state(stream(seed, "initial_state")) for seed in range(50)]
    replies = [f"<think>{long_thought(game, state)}</think><action>Left</action><|end|>" for state in states]
    lengths = [len(tokenizer(reply)["input_ids"]) for reply in replies]
    assert sum(lengths) / len(lengths) >= 48
    assert max(lengths) < TOKENS


def test_the_player_that_replies_at_length_is_taught_once(tmp_path: Path) -> None:
    folder = tmp_path / "long"
    assert long_player(folder, updates=1) == str(folder)
    written = (folder / "adapter_model.safetensors").stat().st_mtime_ns
    assert long_player(folder) == str(folder)
    assert (folder / "adapter_model.safetensors").stat().st_mtime_ns == written
    assert identify(str(folder), PlayerSettings(temperature=1.0)).policy
