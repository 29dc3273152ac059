"""SFT in the first updates, from a teacher or a data set: the replies, the loss, and resuming before and after its end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, THINK_ACTION, PromptFormat
from msgrpo_hub.episode import Group
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.games.board import inside, neighbour
from msgrpo_hub.games.snake import Snake
from msgrpo_hub.rollout import replayed_states
from msgrpo_hub.training import TrainConfig, train
from msgrpo_hub.training.machine import pin_sources
from msgrpo_hub.training.sft import ReplyData, read_chats, with_move
from msgrpo_hub.training.trainer import Trainer
from tests.models.engines import computed_rows
from tests.training.runs import WEIGHTS, Stop, metrics, replies_of, trainer_of

if TYPE_CHECKING:
    from tests.command import Command

LAKE = make_game("FrozenLake-NotSlippery-v1")
POLICY = {"reward", "success", "entropy", "kl", "zero_variance_groups", "unreadable_rate"}
"""Some metrics of a policy that plays."""


@pytest.fixture
def taught(config: TrainConfig) -> TrainConfig:
    small = {"group_size": 4, "selected_per_group": 2, "max_new_tokens": 8, "eval_every": 2, "eval_episodes": 2}
    return replace(config, teacher="optimal", taught=3, **small)  # type: ignore[arg-type]


def taught_groups(trainer: Trainer) -> list[Group]:
    """The teacher's episodes of the first update."""
    assert trainer.teacher
    return trainer.act(trainer.starts.of_update(1), trainer.teacher)


# ---- the teacher's replies


@pytest.mark.parametrize("prompt_format", PROMPT_FORMATS.values(), ids=PROMPT_FORMATS)
def test_a_teacher_keeps_the_thoughts_and_replaces_the_action(prompt_format: PromptFormat) -> None:
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
        *("", "I go left.", "<think>No end", "<action>Jump</action>"),
        "<action>Left</action> and never Left again",  # the last name is not the action
    ],
)
def test_a_reply_whose_action_cannot_be_replaced_becomes_the_move_alone(own: str) -> None:
    assert with_move(own, "<action>Down</action>", THINK_ACTION, LAKE.actions) == "<action>Down</action>"


def test_every_reply_of_a_teacher_is_the_best_move_in_the_tokens_of_the_model(taught: TrainConfig) -> None:
    trainer = trainer_of(taught)
    groups = taught_groups(trainer)
    assert all(group.episodes[0].success for group in groups)
    for reply in replies_of(groups):
        assert trainer.agent.tokenizer.decode(reply.token_ids[:-1]) == reply.text
        assert reply.token_ids[-1] == trainer.agent.tokenizer.eos_token_id
        assert len(reply.log_probs) == len(reply.token_ids)
        assert reply.prompt_ids


@pytest.mark.parametrize("base", ["a model", "pocket"])
def test_a_teacher_that_thinks_says_where_the_opponent_can_go_and_runs_no_model(taught: TrainConfig, base: str) -> None:
    where = (lambda _: "") if base == "pocket" else "({0[0]}, {0[1]}) ".format  # pocket's own thoughts name no cells
    model = base if base == "pocket" else taught.model
    snake = replace(taught, game="Snake-Standard-v1", model=model, teacher="greedy", teacher_thoughts=True, max_new_tokens=200)
    trainer, game = trainer_of(snake), make_game("Snake-Standard-v1")
    assert isinstance(game, Snake)
    named = 0
    for group in taught_groups(trainer):
        states = replayed_states(game, group.episodes[0])
        for step, state in zip(group.episodes[0].steps, states, strict=False):
            thought = str(THINK_ACTION.thought(step.completion.text))
            for action in game.actions:
                cell = neighbour(state.snake[0], action)
                free = cell not in {*state.snake, *state.opponent} and inside(cell, game.rows, game.columns)
                if free and cell in game.scene(state).contested:
                    named += 1
                    assert f"{action} {where(cell)}opponent" in thought
            assert step.action is not None
            assert step.completion.token_ids[-1] == trainer.agent.tokenizer.eos_token_id
    assert named > 0
    assert trainer.update(1).metrics["loss"] > 0
    assert computed_rows(trainer.engine) == 0


def test_a_teacher_of_a_format_without_thoughts_runs_no_model_and_replies_with_moves_alone(taught: TrainConfig) -> None:
    trainer, moves = trainer_of(replace(taught, prompt_format="action-only")), PROMPT_FORMATS["action-only"]
    update = trainer.update(1)
    assert computed_rows(trainer.engine) == 0
    assert {reply.text for reply in replies_of(update.groups)} <= {moves.reply(move) for move in LAKE.actions}
    trainer.update(4)
    assert computed_rows(trainer.engine) > 0


def test_a_teacher_whose_replies_would_be_truncated_is_refused(taught: TrainConfig) -> None:
    trainer = trainer_of(replace(taught, prompt_format="action-only", max_new_tokens=6))
    with pytest.raises(UserError, match=r"'<action>Down</action>' has 7 tokens .* = 6: raise --max-new-tokens"):
        trainer.update(1)


@pytest.mark.parametrize("temperature", [1.0, 1.3])
def test_a_taught_updates_loss_is_the_mean_negative_log_likelihood_of_replies(taught: TrainConfig, temperature: float) -> None:
    """At the temperature of the run, against the model's own forward, one reply at a time."""
    trainer = trainer_of(replace(taught, temperature=temperature))
    groups = taught_groups(trainer)

    @torch.no_grad()
    def naive() -> float:
        losses = []
        for reply in replies_of(groups):
            logits = trainer.model(torch.tensor([reply.prompt_ids + reply.token_ids])).logits[0].float()
            log_probs = (logits / temperature).log_softmax(-1)[len(reply.prompt_ids) - 1 : -1]
            losses += (-log_probs.gather(1, torch.tensor(reply.token_ids)[:, None])).flatten().tolist()
        return sum(losses) / len(losses)

    expected, update = naive(), trainer.update(1)
    assert update.metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert [group.episodes for group in update.groups] == [group.episodes for group in groups]
    assert [item.episode for item in update.selection.selected] == [group.episodes[0] for group in groups]
    assert naive() < expected


# ---- a data set

CHAT = [{"role": r, "content": c} for r, c in zip(["user", "assistant"] * 2, ["Go?", "Up", "And?", "Down"], strict=True)]


@pytest.mark.parametrize("row", [{"messages": CHAT}, {"prompt": CHAT[:1], "completion": CHAT[1:]}])
def test_every_answer_in_a_file_or_a_folder_of_chats_is_learned_after_its_prompt(row: object, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    (file := tmp_path / "train.jsonl").write_text(json.dumps(row), encoding="utf-8")
    assert [*read_chats(str(file))] == [*read_chats(str(tmp_path))] == [(CHAT[:1], "Up"), (CHAT[:3], "Down")]
    file.write_text('{"text": "Up"}', encoding="utf-8")
    with pytest.raises(UserError, match=r"row 0 is {'text': 'Up'}: expected `messages`, or `prompt` and `completion`"):
        [*read_chats(str(file))]


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    """Four replies, and one that is too long for the runs of this file."""
    pytest.importorskip("datasets")
    rows = [{"messages": [CHAT[0], CHAT[1] | {"content": text}]} for text in (*"ABCD", "A reply " * 9)]
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return tmp_path / "chats.jsonl"


def test_the_updates_share_out_the_epochs_of_a_data_set_which_may_not_change(taught: TrainConfig, chats: Path) -> None:
    config = replace(taught, teacher="none", sft=str(chats), sft_epochs=3)
    data = ReplyData(config, trainer_of(config).agent)
    shares = [[reply.text for reply in replies_of(data.of_update(index))] for index in (1, 2, 3)]
    assert [sorted(share) for share in shares] == [[*"ABCD"]] * 3
    assert len({*map(tuple, shares)}) > 1
    with pytest.raises(UserError, match="lower --taught, or raise --sft-epochs"):
        ReplyData(replace(config, taught=4, sft_epochs=1, max_new_tokens=1), trainer_of(config).agent)
    with pytest.raises(UserError, match="has changed since the run began"):
        pin_sources(config, {"sft_commit": "0123"})


# ---- a whole run


@pytest.mark.parametrize("of_data", [False, True])
def test_a_taught_run_resumes_in_either_part_and_its_metrics_differ_by_part(
    of_data: bool, taught: TrainConfig, chats: Path, tmp_path: Path
) -> None:
    taught = replace(taught, teacher="none", sft=str(chats), sft_epochs=3) if of_data else taught
    train(taught, tmp_path / "whole", show_progress=False)
    for index in (2, 4):
        with pytest.raises(KeyboardInterrupt):
            train(taught, tmp_path / "run", resume=True, show_progress=False, callbacks=[Stop(index)])
    summary = train(taught, tmp_path / "run", resume=True, show_progress=False)
    adapters = [(tmp_path / name / "adapter" / WEIGHTS).read_bytes() for name in ("whole", "run")]
    assert adapters[0] == adapters[1]
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "run")
    *lines, played = metrics(tmp_path / "run")
    assert [line.get("sft_replies", line.get("teacher_success")) for line in lines] == [4.0 if of_data else 1.0] * 3
    assert not any(POLICY & line.keys() for line in lines)
    assert lines[-1]["loss"] < lines[0]["loss"] or not of_data
    assert played.keys() > POLICY
    assert not {"teacher_reward", "sft_replies"} & played.keys()
    assert [line["update"] for line in (*lines, played) if "validation_reward" in line] == [2, 4]
    assert "learned_nothing" not in summary


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--teacher optimal", "teacher = 'optimal' with taught = 0: expected both or neither"),
        ("--taught 3", "teacher = 'none' with taught = 3: expected both or neither"),
        ("--teacher optimal --taught 101", "taught = 101 of updates = 100: expected at most all"),
        ("--teacher planner --taught 3", "teacher = 'planner' does not know FrozenLake-NotSlippery-v1: expected greedy or"),
        ("--teacher optimal --taught 3 --save-rollouts", "save_rollouts with a teacher or sft"),
        ("--sft ada/lake --teacher auto", "sft = 'ada/lake' with teacher = 'auto' and taught = 0: expected updates for the data"),
        ("--preset small-model --sft no/such/data", "sft = 'no/such/data': expected a data set on the Hub as USER/NAME"),
        ("--teacher auto --taught 3 --game CliffWalking-Gymnasium-v1,Snake-Solo-v1", "'auto' does not know Snake-Solo-v1: expe"),
        ("--teacher-thoughts", "teacher_thoughts with teacher = 'none'"),
        ("--teacher optimal --taught 3 --teacher-thoughts --prompt-format json", "expected a teacher, lakes or Snakes without"),
        ("--teacher optimal --taught 3 --teacher-thoughts --game CliffWalking-Gymnasium-v1", "expected a teacher, lakes or Sna"),
        ("--teacher greedy --taught 3 --teacher-thoughts --game Snake-Solo-v1:compass", "expected a teacher, lakes or Snakes"),
    ],
)
def test_a_teacher_that_cannot_teach_is_refused_before_loading(flags: str, message: str, msgrpo: Command, tmp_path: Path) -> None:
    refused = msgrpo("train", *flags.split(), "--output-dir", tmp_path / "run")
    assert refused.code == 2
    assert message in refused.err
    assert not (tmp_path / "run").exists()
