"""Every command says that a context is too short before it loads the weights, here of a model that has none to load."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.cli.suites import FIRM, SNAKE, Run, write_suite
from tests.models.loading import edit

LAKE_FITS = 200
"""Positions for a prompt of the lake with a reply of 8 tokens, and for no prompt of Snake."""


@pytest.fixture(scope="module")
def hollow(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose file of weights is cut off."""
    folder = tmp_path_factory.mktemp("hollow")
    shutil.copytree(tiny_model, folder / "model")
    weights = folder / "model" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) * 3 // 4])
    edit(folder / "model" / "config.json", max_position_embeddings=LAKE_FITS)
    write_suite(folder / "lake.toml", 2, FIRM)
    write_suite(folder / "both.toml", 2, FIRM, SNAKE)
    return folder


COMMANDS = {
    "eval": ("eval @/model --output-dir @/out --suite @/lake.toml", "eval @/model --output-dir @/out --suite @/both.toml"),
    "play": (f"play {FIRM} --player @/model", f"play {SNAKE} --player @/model"),
    "train": (
        f"train --model @/model --output-dir @/run --game {FIRM}",
        f"train --model @/model --output-dir @/run --game {FIRM}=3,{SNAKE}",
    ),
}


@pytest.mark.parametrize(("fits", "too_long"), COMMANDS.values(), ids=COMMANDS)
def test_a_context_too_short_for_one_of_the_games_is_told_before_the_weights_are_loaded(
    fits: str, too_long: str, hollow: Path, run: Run
) -> None:
    first, second = (run(*f"{line} --max-new-tokens 8".replace("@", str(hollow)).split()) for line in (fits, too_long))
    assert re.search("no model in the folder .*incomplete", first.said[-1])
    assert f"leaves no room for a reply in the {LAKE_FITS} positions" in second.said[-1]
    assert (first.code, second.code) == (2, 2)
