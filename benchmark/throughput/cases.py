"""The measured cases: one case is one kind of update, the same work for every side."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from benchmark.throughput.rows import clock
from msgrpo_hub.agent.policy import Policy, Prompt
from msgrpo_hub.downloads.names import POCKET, pocket_path
from msgrpo_hub.episode import Completion, Group
from msgrpo_hub.games import Game, make_game
from msgrpo_hub.games.registry import GAMES
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.msgrpo import SelectedEpisode
from msgrpo_hub.training.acting import EngineActor
from msgrpo_hub.training.batch import Pack
from msgrpo_hub.training.config import TrainConfig, preset
from msgrpo_hub.training.summary import Metrics
from msgrpo_hub.training.trainer import Start, Trainer
from tests.real.models import SOURCES, real_model

LAKE, SNAKE, PAPER = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1", "Snake-Standard-v1"
PRESETS = {LAKE: "quickstart", SNAKE: "quickstart-snake", PAPER: "paper-snake"}

_FIELDS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
_SIZES = {
    "0.5b": (896, 4864, 24, 14, 2),
    "1.5b": (1536, 8960, 28, 12, 2),
    "3b": (2048, 11008, 36, 16, 2),
    "7b": (3584, 18944, 28, 28, 4),
    "14b": (5120, 13824, 48, 40, 8),
    "32b": (5120, 27648, 64, 40, 8),
    "72b": (8192, 29568, 80, 64, 8),
}


def qwen(size: str) -> dict[str, Any]:
    """The configuration of Qwen2.5 of this size, as published."""
    large = size not in ("0.5b", "1.5b", "3b")
    shared = {"max_position_embeddings": 32768, "rope_theta": 1e6, "tie_word_embeddings": not large}
    return shared | {"vocab_size": 152064 if large else 151936, **dict(zip(_FIELDS, _SIZES[size], strict=True))}


SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        **{"vocab_size": 2048, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True},
    },
    **{f"qwen2.5-{size}": qwen(size) for size in ("0.5b", "1.5b", "3b")},
}
"""Name → configuration of Qwen2; Qwen2.5's are as published."""


def model_folder(name: str, models: Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> str:
    """The folder of a model with random weights and pocket's tokenizer, made if `models` has none; `pocket` stays `pocket`.

    Speed depends only on the shape. Tokens that the tokenizer does not know decode to nothing.
    """
    if name == POCKET:
        return POCKET
    if name in SOURCES:
        return str(real_model(name))
    folder = models / f"{name}-{str(dtype).removeprefix('torch.')}"
    if not (folder / "tokenizer.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(pocket_path())
        torch.manual_seed(0)
        special = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(device):
                model = Qwen2ForCausalLM(Qwen2Config(**SHAPES[name], **special))
        finally:
            torch.set_default_dtype(before)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return str(folder)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kind of update. All sides play the same starts with the same settings."""

    game: str
    """The game's preset has all settings that the case does not."""
    model: str = "pocket"
    """The built-in base, a pretrained model of `tests/real`, or a shape of `SHAPES` with random weights."""
    dtype: str = ""
    """Type of the base's weights; by default float32."""
    reply: int = 0
    """Number of tokens of every forced reply, with random actions; 0 for natural replies."""
    groups: int = 8
    group_size: int = 32
    drawn: int = 8
    policy_updates: int = 0
    """The policy is the base after this many updates of the preset, or of SFT on optimal moves for a pretrained model."""
    prompt_format: str = "think-action"
    limit: int = 0
    """Limit of natural replies, in tokens; 0 keeps the preset's."""
    horizon: int = 0
    """Horizon of the game; 0 keeps the default."""

    @property
    def name(self) -> str:
        """The name of the case in tables."""
        settings = {key: value for key, value in asdict(self).items() if value and key != "game"}
        return " ".join([self.game, *(f"{key}={value}" for key, value in settings.items())])

    def config(self, models: Path, **changes: Any) -> TrainConfig:
        """The game's preset with the sizes of this case, and a learning rate so small that the policy does not change.

        Registers the game for this process if its horizon differs.
        """
        game: Any = make_game(self.game)
        if self.horizon:
            game = replace(game, id=f"{self.game}-horizon{self.horizon}", horizon=self.horizon)
            GAMES[game.id] = game
        taught = {"prompt_format": self.prompt_format, "teacher": "none", "teacher_thoughts": False, "taught": 0}
        return replace(
            preset("small-model" if self.model in SOURCES else PRESETS[self.game]),
            **{
                **(taught if self.model in SOURCES else {}),
                "game": game.id,
                "model": changes.get("model") or model_folder(self.model, models, getattr(torch, self.dtype or "float32")),
                **({"dtype": self.dtype} if self.dtype else {}),
                **{"groups": self.groups, "group_size": self.group_size, "selected_per_group": self.drawn},
                **({"max_new_tokens": self.reply or self.limit} if self.reply or self.limit else {}),
                **{"learning_rate": 1e-12, "warmup": 0, "eval_every": 0, "test_episodes": 0},
                **changes,
            },
        )


@dataclass
class ForcedReply:
    """A policy whose replies end only at the limit: one of four random actions, or none in one of five cases.

    Random weights never write an action. A player who never moves would see the same prompt in every step, and a group whose
    returns are all equal would train nothing.
    """

    policy: Policy
    actions: Sequence[str] = field(default=("Up", "Right", "Down", "Left"))

    def caching(self) -> AbstractContextManager[None]:
        caching: AbstractContextManager[None] = getattr(self.policy, "caching", nullcontext)()
        return caching

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        replies = self.policy.complete(prompts, rngs)
        texts = [*(f"<action>{action}</action>" for action in self.actions), ""]
        contents = [texts[int(rng.spawn(1)[0].integers(5))] for rng in rngs]  # spawned, so that all sides play alike
        return [replace(reply, text=text) for reply, text in zip(replies, contents, strict=True)]


class MeasuredTrainer(Trainer):
    """The library's trainer. It records the episodes played and trained on, to count the work."""

    played: list[Group]
    packs: Sequence[Pack] = ()
    selected: Sequence[SelectedEpisode] = ()
    """The training data of a side without packs."""
    seconds_acting = 0.0
    """Of the last update."""

    @property
    def game(self) -> Game:
        """The only game of the case."""
        [game] = self.starts.games.values()
        return game

    def ready(self) -> AbstractContextManager[None]:
        """The context of all updates, entered before they are timed."""
        return nullcontext()

    def act(self, starts: Sequence[Start], teacher: EngineActor | None = None) -> list[Group]:  # noqa: ARG002
        began = clock()
        self.played, self.packs, self.selected = self.play(starts), (), ()
        self.seconds_acting = clock() - began
        return self.played

    def play(self, starts: Sequence[Start]) -> list[Group]:
        """Plays the episodes as this side does."""
        return super().act(starts)

    def gradient(self, packs: Sequence[Pack], taught: bool = False) -> Metrics:
        self.packs = packs
        return super().gradient(packs, taught)


def make_trainer(case: Case, models: Path, kind: type[MeasuredTrainer] = MeasuredTrainer, **changes: Any) -> MeasuredTrainer:
    """A trainer for a case, with the adapter of its policy, and forced replies if the case has them."""
    changes = {"device": "cuda" if torch.cuda.is_available() else "cpu", **changes}
    config = case.config(models, **changes)
    trainer = kind(config, Accelerator(cpu=not torch.cuda.is_available()))
    if case.policy_updates:
        for name, tensor in load_file(adapter_file(case, models)).items():
            trainer.parameters[name].data.copy_(tensor)
    if case.reply:
        assert isinstance(trainer.agent, LanguageModel)
        trainer.agent.engine.end_ids = frozenset()
        trainer.model.generation_config.eos_token_id = None
        forced: Any = ForcedReply(trainer.agent, tuple(trainer.game.actions))
        trainer.agent, trainer.actor = forced, EngineActor(forced)
    return trainer


def adapter_file(case: Case, models: Path) -> Path:
    """The adapter of a trained policy."""
    real = f"{case.model}-{case.prompt_format}-" if case.model in SOURCES else ""
    return models / f"{real}{case.game}-{case.policy_updates}.safetensors"
