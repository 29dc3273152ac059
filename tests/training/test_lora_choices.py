"""Which layers LoRA is on, how it is scaled, and an adapter merged into its base as the guide says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import nn

from msgrpo_hub.agent.prompt import build_prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game, stream
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.training.adapter import learning_mode, new_lora, save_adapter, without_dropout
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.trainer import Trainer
from tests.families import tiny_model

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "models.md"
SMALL = {
    "updates": 2,
    "groups": 2,
    "group_size": 4,
    "selected_per_group": 2,
    "max_new_tokens": 4,
    "lora_rank": 4,
    "eval_every": 0,
}


def adapted(family: str, targets: str = "all-linear") -> set[str]:
    """The short names of the layers with LoRA."""
    model = new_lora(tiny_model(family), targets, rank=2)
    return {name.split(".lora_A")[0].rpartition(".")[2] for name, _ in model.named_parameters() if ".lora_A" in name}


def test_all_linear_layers_but_the_head_are_the_default() -> None:
    assert adapted("llama") == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_layers_are_chosen_by_name() -> None:
    assert adapted("llama", "q_proj,v_proj") == {"q_proj", "v_proj"}
    assert adapted("llama", "q_proj, v_proj") == {"q_proj", "v_proj"}
    assert adapted("llama", "layers.0.self_attn.q_proj,lm_head") == {"q_proj", "lm_head"}


def test_what_peft_refuses_or_cannot_wrap_stays_frozen() -> None:
    assert adapted("mamba2") == {"in_proj"}
    assert "router" not in adapted("phimoe")


def test_learning_sees_the_experts_that_acting_sees() -> None:
    model, ids = tiny_model("phimoe"), torch.arange(3, 243).reshape(8, 30)
    model.config.attention_dropout = 0.0
    without_dropout(model)
    learning_mode(model.eval())
    assert model.training
    with torch.no_grad():
        seen = [model(ids).logits for _ in range(2)]
        acting = model.eval()(ids).logits
        assert not torch.equal(model.train()(ids).logits, acting)  # what it would be with routers that draw
    assert torch.equal(seen[0], acting)
    assert torch.equal(seen[1], acting)


def test_a_name_that_no_layer_has_is_one_line_with_the_names_there_are() -> None:
    with pytest.raises(
        UserError, match=r"lora_targets = 'q,v': .* has no layer 'q'; expected all-linear, or some of .*k_proj.*q_p"
    ):
        adapted("llama", "q,v")
    with pytest.raises(UserError, match="has no layer 'v_porj'"):
        adapted("llama", "q_proj,v_porj")
    with pytest.raises(UserError, match=r"does not fit .*expected all-linear"):
        adapted("llama", "self_attn")


def test_the_bases_own_dropout_is_off_while_training() -> None:
    model = tiny_model("gpt2").train()
    ids = torch.tensor([[1, 2, 3]])
    assert not torch.equal(model(ids).logits, model(ids).logits)
    without_dropout(model)
    assert torch.equal(model(ids).logits, model(ids).logits)
    assert any(isinstance(layer, nn.Dropout) for layer in model.modules())


def weights_after(model: Path, updates: int, **options: object) -> torch.Tensor:
    trainer = Trainer.from_config(
        TrainConfig(model=str(model), seed=1, learning_rate=1e-2, **SMALL, **options), Accelerator(cpu=True)
    )  # type: ignore[arg-type]
    for index in range(1, updates + 1):
        trainer.update(index)
    return torch.cat([parameter.detach().flatten() for parameter in trainer.parameters.values()])


def test_dropout_is_drawn_from_the_runs_seed(tiny_model: Path) -> None:
    runs = [weights_after(tiny_model, 1, lora_dropout=dropout) for dropout in (0.5, 0.5, 0.0)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_without_dropout_an_update_leaves_torchs_generator_alone(tiny_model: Path) -> None:
    """Own credits, samplers and callbacks may draw from it, and every update would restart their stream."""
    torch.manual_seed(7)
    before = torch.get_rng_state()
    trainer = Trainer.from_config(TrainConfig(model=str(tiny_model), **SMALL), Accelerator(cpu=True))  # type: ignore[arg-type]
    torch.set_rng_state(before)
    trainer.update(1)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_merged_adapter_replies_as_the_adapter(finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(finished_run / "adapter", tmp_path / "runs" / "lake" / "adapter")
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    exec(code, {})
    game = make_game("FrozenLake-NotSlippery-v1")
    prompts = [build_prompt(game, game.initial_state(stream(seed, "initial_state"))) for seed in range(4)]
    replies = [
        [
            reply.text
            for reply in LanguageModel.from_pretrained(f"runs/lake/{name}").complete(prompts, [np.random.default_rng(0)] * 4)
        ]
        for name in ("adapter", "merged")
    ]
    assert replies[0] == replies[1]


@pytest.mark.parametrize("targets", ["all-linear", "q_proj,lm_head"])
def test_the_hub_is_not_asked_for_the_base_where_an_adapter_is_saved_or_loaded(
    targets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("peft.utils.save_and_load.check_file_exists_on_hf_hub", lambda *file, **_: asked.append(file))
    trainer = Trainer.from_config(TrainConfig(**SMALL, lora_targets=targets), Accelerator(cpu=True))  # type: ignore[arg-type]
    trainer.model.peft_config["default"].base_model_name_or_path = "org/base"
    save_adapter(trainer.agent, tmp_path / "adapter", "think-action")
    agent = LanguageModel.from_pretrained("pocket", str(tmp_path / "adapter"))
    stored = {name: value for name, value in agent.model.state_dict().items() if "lora_" in name}
    trained = {name: value for name, value in trainer.model.state_dict().items() if "lora_" in name}
    assert not asked
    assert stored.keys() == trained.keys()
    assert all(stored[name].equal(trained[name]) for name in stored)
