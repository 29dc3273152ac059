"""The first updates of a run can be taught: what a teacher replies, what is learned from it, and how a run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, THINK_ACTION, Message, PromptFormat, Turns, find_format
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game, make_game
from msgrpo_hub.games.board import inside, neighbour
from msgrpo_hub.games.snake import Snake
from msgrpo_hub.rollout import replayed_states
from msgrpo_hub.training import Callback, TrainConfig, train
from msgrpo_hub.training.acting import with_move
from msgrpo_hub.training.callbacks import Update
from tests.command import Command
from tests.training.conftest import TWO
from tests.training.interrupted import metrics
from tests.training.trainers import trainer_of

LAKE = make_game("FrozenLake-NotSlippery-v1")
TAUGHT = {"teacher": "optimal", "taught": 3}
POLICY = {"reward", "success", "entropy", "kl", "zero_variance_groups", "unreadable_rate"}
"""Some of the figures of a policy that plays."""


@pytest.fixture
def config(tiny_model: Path) -> TrainConfig:
    small: dict[str, Any] = {"updates": 4, "groups": 2, "group_size": 4, "selected_per_group": 2, "max_new_tokens": 8}
    return TrainConfig(model=str(tiny_model), lora_rank=4, learning_rate=1e-2, eval_every=2, eval_episodes=2, **small, **TAUGHT)


# ---- what the teacher replies


@pytest.mark.parametrize("prompt_format", PROMPT_FORMATS.values(), ids=PROMPT_FORMATS)
def test_a_teacher_keeps_what_was_thought_and_exchanges_the_action(prompt_format: PromptFormat) -> None:
    if prompt_format.name == "json":
        own = '{"thought": "Left, not Left of left", "action": "Left"}'
    else:
        thoughts = "".join(f"<{tag}>Left, or Down?</{tag}>" for tag in getattr(prompt_format, "parts", ()))
        own = f"{thoughts}<action>Left</action>"
    text = with_move(own, prompt_format.reply("Down"), prompt_format, LAKE.actions)
    assert prompt_format.parse(text, LAKE.actions) == "Down"
    assert prompt_format.thought(text) == prompt_format.thought(own)
    assert len(text) == len(own)


@pytest.mark.parametrize(
    "own",
    [
        "",
        "I go left.",
        "<think>No end",
        "<action>Jump</action>",
        "<action>Left</action> and never Left again",  # the last name is not the action
    ],
)
def test_a_reply_whose_action_cannot_be_exchanged_gives_way_to_the_move_alone(own: str) -> None:
    assert with_move(own, "<action>Down</action>", THINK_ACTION, LAKE.actions) == "<action>Down</action>"


def test_every_reply_of_a_teacher_is_the_best_move_in_the_tokens_of_the_model(config: TrainConfig) -> None:
    trainer = trainer_of(config)
    assert trainer.teacher
    episodes = trainer.teacher.play(trainer.starts.games, [(LAKE.id, seed, 0) for _, seed in trainer.starts.of_update(1)])
    replies = [step.completion for episode in episodes for step in episode.steps]
    assert all(episode.success for episode in episodes)
    for reply in replies:
        assert trainer.agent.tokenizer.decode(reply.token_ids[:-1]) == reply.text
        assert reply.token_ids[-1] == trainer.agent.tokenizer.eos_token_id
        assert len(reply.log_probs) == len(reply.token_ids)
        assert reply.prompt_ids


def test_a_teacher_that_thinks_says_where_the_opponent_can_go_and_asks_the_model_for_no_thoughts(config: TrainConfig) -> None:
    snake = replace(config, game="Snake-Standard-v1", teacher="greedy", teacher_thoughts=True, max_new_tokens=200)
    trainer, game = trainer_of(snake), make_game("Snake-Standard-v1")
    assert isinstance(game, Snake)
    groups = trainer.played_by(trainer.teacher, trainer.starts.of_update(1), 1)  # type: ignore[arg-type]
    told = 0
    for group in groups:
        states = replayed_states(game, group.episodes[0])
        for step, state in zip(group.episodes[0].steps, states, strict=False):
            thought = str(THINK_ACTION.thought(step.completion.text))
            for action in game.actions:
                cell = neighbour(state.snake[0], action)
                free = cell not in {*state.snake, *state.opponent} and inside(cell, game.rows, game.columns)
                if free and cell in game.scene(state).contested:
                    told += 1
                    assert f"{action} opponent" in thought
            assert step.action is not None
            assert step.completion.token_ids[-1] == trainer.agent.tokenizer.eos_token_id
    assert told > 0
    assert trainer.update(1).metrics["loss"] > 0
    assert trainer.engine.forward_rows == 0


class Silent(PromptFormat):
    """A format of one's own without thoughts."""

    name = "silent"

    def render(self, game: Game, observation: str, history: Turns = ()) -> list[Message]:
        return PROMPT_FORMATS["action-only"].render(game, observation, history)

    def reply(self, action: str) -> str:
        return action

    def parse(self, text: str, actions: Sequence[str]) -> str | None:
        return text if text in actions else None


SILENT = Silent()


@pytest.mark.parametrize("name", ["action-only", f"{__name__}:SILENT"])
def test_a_teacher_of_a_format_without_thoughts_runs_no_model_and_teaches_the_moves_alone(config: TrainConfig, name: str) -> None:
    trainer = trainer_of(replace(config, prompt_format=name))
    update = trainer.update(1)
    assert trainer.engine.forward_rows == 0
    steps = [step for group in update.groups for episode in group.episodes for step in episode.steps]
    assert {step.completion.text for step in steps} <= {find_format(name, may_import=True).reply(move) for move in LAKE.actions}
    assert trainer.update(4).metrics["seconds_acting"] > 0
    assert trainer.engine.forward_rows > 0


def test_a_teacher_whose_replies_would_be_truncated_is_refused(config: TrainConfig) -> None:
    trainer = trainer_of(replace(config, prompt_format="action-only", max_new_tokens=6))
    with pytest.raises(UserError, match=r"'<action>Down</action>' has 7 tokens .* = 6: raise --max-new-tokens"):
        trainer.update(1)


# ---- what is learned


@pytest.mark.parametrize("temperature", [1.0, 1.3])
def test_the_loss_of_a_taught_update_is_the_mean_negative_log_likelihood_of_its_replies_at_the_temperature_of_the_run(
    config: TrainConfig, temperature: float
) -> None:
    """Against the model's own forward, one reply at a time."""
    trainer = trainer_of(replace(config, lora_dropout=0.0, temperature=temperature))
    played: list[Completion] = []

    def naive() -> float:
        losses = []
        for reply in played:
            logits = trainer.model(torch.tensor([reply.prompt_ids + reply.token_ids])).logits[0].float()
            log_probs = (logits / temperature).log_softmax(-1)[len(reply.prompt_ids) - 1 : -1]
            losses += (-log_probs.gather(1, torch.tensor(reply.token_ids)[:, None])).flatten().tolist()
        return sum(losses) / len(losses)

    groups = trainer.played_by(trainer.teacher, trainer.starts.of_update(1), 1)  # type: ignore[arg-type]
    played = [step.completion for group in groups for episode in group.episodes for step in episode.steps]
    with torch.no_grad():
        expected = naive()
    update = trainer.update(1)
    assert update.metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert [group.episodes for group in update.groups] == [group.episodes for group in groups]
    assert [len(item.episode.steps) for item in update.selected] == [len(group.episodes[0].steps) for group in groups]
    with torch.no_grad():
        assert naive() < expected


# ---- a whole run


class Stops(Callback):
    """Ends a run after an update, before it is saved."""

    def __init__(self, index: int) -> None:
        self.index = index

    def on_update(self, update: Update) -> None:
        if update.index == self.index:
            raise KeyboardInterrupt


def test_a_taught_run_resumes_in_either_part_and_tells_them_apart(config: TrainConfig, tmp_path: Path) -> None:
    train(config, tmp_path / "whole", show_progress=False)
    for index in (2, 4):
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "run", resume=True, show_progress=False, callbacks=[Stops(index)])
    summary = train(config, tmp_path / "run", resume=True, show_progress=False)
    adapters = [(tmp_path / name / "adapter" / "adapter_model.safetensors").read_bytes() for name in ("whole", "run")]
    assert adapters[0] == adapters[1]
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "run")
    *taught, played = metrics(tmp_path / "run")
    assert all(line["teacher_success"] == 1.0 and not POLICY & line.keys() for line in taught)
    assert played.keys() > POLICY
    assert "teacher_reward" not in played
    assert [line["update"] for line in (*taught, played) if "validation_reward" in line] == [2, 4]
    assert "learned_nothing" not in summary


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--teacher optimal", "teacher = 'optimal' with taught = 0: expected both or neither"),
        ("--taught 3", "teacher = 'none' with taught = 3: expected both or neither"),
        ("--teacher optimal --taught 101", "taught = 101 of updates = 100: expected at most all"),
        (
            "--teacher planner --taught 3",
            "teacher = 'planner' does not know FrozenLake-NotSlippery-v1: expected greedy or",
        ),
        ("--teacher optimal --taught 3 --save-rollouts", "save_rollouts with a teacher"),
        ("--teacher best --taught 3", "'best'"),
        (
            "--teacher auto --taught 3 --game CliffWalking-Gymnasium-v1,Snake-Solo-v1",
            "'auto' does not know Snake-Solo-v1: expected",
        ),
        ("--teacher-thoughts", "teacher_thoughts with teacher = 'none'"),
        ("--teacher optimal --taught 3 --teacher-thoughts --prompt-format json", "expected a teacher, lakes or Snakes without"),
        ("--teacher optimal --taught 3 --teacher-thoughts --game CliffWalking-Gymnasium-v1", "expected a teacher, lakes or Sna"),
        ("--teacher greedy --taught 3 --teacher-thoughts --game Snake-Solo-v1:compass", "expected a teacher, lakes or Snakes"),
    ],
)
def test_a_teacher_that_cannot_teach_is_refused_before_anything_is_loaded(
    flags: str, said: str, msgrpo: Command, tmp_path: Path
) -> None:
    refused = msgrpo("train", *flags.split(), "--output-dir", tmp_path / "run")
    assert refused.code == 2
    assert said in refused.err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_two_processes_teach_what_one_does(msgrpo: Command, tiny_model: Path, tmp_path: Path) -> None:
    small = (
        "--teacher optimal --taught 2 --updates 2 --groups 3 --lora-rank 4 --learning-rate 3e-3 --eval-every 0 --test-episodes 0"
    )
    arguments = ["train", "--model", str(tiny_model), *small.split(), "--token-budget", "256", "--output-dir"]
    assert msgrpo(*arguments, tmp_path / "one").code == 0
    two = msgrpo(*arguments, tmp_path / "two", program=TWO)
    assert two.code == 0, two.err
    one, both = (load_file(tmp_path / name / "adapter" / "adapter_model.safetensors") for name in ("one", "two"))
    assert all(torch.allclose(weights, both[name], atol=1e-5) for name, weights in one.items())
    assert [line["teacher_reward"] for line in metrics(tmp_path / "two")] == [1.0, 1.0]
