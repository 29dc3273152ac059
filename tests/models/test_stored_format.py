"""The prompt format of an adapter: stored by name, used on loading, ignored by plain PEFT, and never imported."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, TaggedFormat, request_text
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.scoring import ScorePolicy
from msgrpo_hub.rollout import play_episodes

LAKE = make_game("FrozenLake-NotSlippery-v1")


@pytest.fixture
def adapter(qwen2_folder: Path, tmp_path: Path) -> Callable[[str | None], str]:
    """Maps a name to an adapter that stores it; None stores no name."""

    def make(name: str | None) -> str:
        model = AutoModelForCausalLM.from_pretrained(qwen2_folder)
        get_peft_model(model, LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM")).save_pretrained(
            tmp_path / "adapter"
        )
        if name is not None:
            (tmp_path / "adapter" / "msgrpo.json").write_text(json.dumps({"prompt_format": name}))
        return str(tmp_path / "adapter")

    return make


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "stored_format.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("stored_format", None)


@pytest.mark.parametrize("name", PROMPT_FORMATS)
def test_an_adapter_is_prompted_in_the_format_stored_with_it(adapter: Callable[[str | None], str], name: str) -> None:
    agent = LanguageModel.from_pretrained(adapter(name), max_new_tokens=32)
    assert agent.prompt_format == PROMPT_FORMATS[name]
    scored = ScorePolicy(agent)
    [episode] = play_episodes(LAKE, scored, [(0, 0)])
    assert [step.completion.text for step in episode.steps] == [PROMPT_FORMATS[name].reply(str(s.action)) for s in episode.steps]
    [ids] = {step.completion.prompt_ids for step in episode.steps[:1]}
    request = request_text(PROMPT_FORMATS[name].request, LAKE.actions)  # type: ignore[attr-defined]
    assert request in agent.tokenizer.decode(ids)


def test_an_adapter_without_a_stored_format_is_prompted_in_think_action(adapter: Callable[[str | None], str]) -> None:
    agent = LanguageModel.from_pretrained(adapter(None), max_new_tokens=4)
    assert agent.prompt_format is None
    plain, chosen = (play_episodes(LAKE, agent, [(0, 0)], prompt_format=one) for one in (None, PROMPT_FORMATS["think-action"]))
    assert plain == chosen


def test_plain_peft_loads_an_adapter_with_a_stored_format(adapter: Callable[[str | None], str], qwen2_folder: Path) -> None:
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(qwen2_folder), adapter("json"))
    assert any("lora" in name for name, _ in model.named_parameters())


@pytest.mark.usefixtures("importable")
def test_a_stored_name_never_imports_and_a_given_format_overrides_it(adapter: Callable[[str | None], str]) -> None:
    folder = adapter("stored_format:FORMAT")
    with pytest.raises(UserError, match="would import code: expected one of think-action") as caught:
        LanguageModel.from_pretrained(folder)
    assert "\n" not in str(caught.value)
    own = TaggedFormat(name="mine", request="Act!")
    assert LanguageModel.from_pretrained(folder, prompt_format=own).prompt_format == own
    assert "stored_format" not in sys.modules
