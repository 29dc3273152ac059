"""The card of a data set of rollouts: its figures, and its examples, which run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from msgrpo_hub.hub.card_rules import split_card
from msgrpo_hub.hub.rollout_reading import load_rollouts, supervised
from msgrpo_hub.storage.schema import EPISODE_COLUMNS, STEP_COLUMNS
from tests.hub.pushed_rollouts import LAKE, load, push, rows
from tests.hub_server.client import LOADS_DATASETS, LOADS_MODELS
from tests.hub_server.lanes import Loopback

warm = (*LOADS_MODELS, *LOADS_DATASETS, "msgrpo_hub.hub.rollouts")


def run_example(source: str) -> None:
    exec(source, {})


# ---- the card


def test_the_card_is_exact(loopback: Loopback, saved: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, saved, repo)
    files = loopback.files(repo, "dataset")
    metadata, text = split_card(files["README.md"].decode())
    assert metadata["configs"] == [
        {"config_name": "default", "default": True, "data_files": [{"split": "train", "path": "default/train-*.parquet"}]},
        {"config_name": "steps", "data_files": [{"split": "train", "path": "steps/train-*.parquet"}]},
    ]
    heads, steps = rows(files, "default"), rows(files, "steps")
    counts = {info["config_name"]: info["splits"] for info in metadata["dataset_info"]}
    for name, found in (("default", heads), ("steps", steps)):
        assert [(split["name"], split["num_examples"]) for split in counts[name]] == [("train", len(found))]
        assert counts[name][0]["num_bytes"] > len(found)
    assert {"msgrpo", "text-games", "reinforcement-learning", LAKE} <= set(metadata["tags"])
    assert (metadata["license"], metadata["size_categories"]) == ("apache-2.0", ["n<1K"])
    for columns in (EPISODE_COLUMNS, STEP_COLUMNS):
        for name, (_, meaning) in columns.items():
            assert re.search(rf"^\| `{name}` \| [^|]+ \| {re.escape(meaning)} \|$", text, re.MULTILINE), name
    success = 100 * sum(head["success"] for head in heads) / len(heads)
    selected = 100 * sum(head["selected"] for head in heads) / len(heads)
    unreadable = 100 * sum(step["action"] is None for step in steps) / len(steps)
    reward = sum(head["reward"] for head in heads) / len(heads)
    assert (
        f"| train | training, updates 1–3 | `{LAKE}` | {len(heads)} | {len(steps)} | {reward:.3f} | {success:.1f} % | "
        f"{selected:.1f} % | {unreadable:.1f} % |"
    ) in text


def examples(card: bytes) -> Iterator[str]:
    yield from re.findall(r"```python\n(.*?)```", card.decode(), re.DOTALL)


def test_every_example_of_the_card_runs(loopback: Loopback, saved: Path, evaluated: Path) -> None:
    for folder in (saved, evaluated):
        repo = loopback.repository("dataset")
        loopback.owner.call(push, folder, repo)
        sources = list(examples(loopback.files(repo, "dataset")["README.md"]))
        assert len(sources) == 3
        for source in sources:
            done = loopback.owner.attempt(run_example, source)
            assert (done.code, "Ignoring" in done.err) == (0, False), done.err  # part of a malformed card


def test_a_card_shows_fine_tuning_only_if_there_are_examples(tmp_path: Path) -> None:
    from msgrpo_hub.evaluation import evaluate
    from msgrpo_hub.evaluation.suites import Suite
    from msgrpo_hub.hub.rollouts import stage_rollouts

    for player, blocks in (("random", 2), ("optimal", 3)):
        evaluate(player, Suite(name="mine", tasks=(LAKE,), episodes=1), tmp_path / player)
        (tmp_path / f"{player}-staged").mkdir()
        stage_rollouts(tmp_path / player, "ada/lake", tmp_path / f"{player}-staged")
        assert len(list(examples((tmp_path / f"{player}-staged" / "README.md").read_bytes()))) == blocks


# ---- learning from it


def fine_tuned(repo: str) -> tuple[float, float, list[str]]:
    """One step of TRL on the successful episodes: the loss, how far the weights moved, and what was trained on."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer  # type: ignore[import-untyped]

    from msgrpo_hub.downloads.names import pocket_path

    examples = supervised(load(repo), keep=lambda episode: len(episode.steps) > 1)
    model = AutoModelForCausalLM.from_pretrained(pocket_path())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    settings = SFTConfig(
        output_dir="out",
        max_steps=1,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        report_to="none",
        use_cpu=True,
        bf16=False,
        save_strategy="no",
    )
    trainer = SFTTrainer(
        model,
        settings,
        train_dataset=Dataset.from_list(examples),
        processing_class=AutoTokenizer.from_pretrained(pocket_path()),
    )
    loss = trainer.train().training_loss
    moved = max(float((b - p.cpu()).abs().max()) for b, p in zip(before, model.parameters(), strict=True))
    batch = next(iter(trainer.get_train_dataloader()))
    learned = [row[labels != -100] for row, labels in zip(batch["input_ids"], batch["labels"], strict=True)]
    assert torch.isfinite(torch.tensor(loss))
    return loss, moved, [trainer.processing_class.decode(ids) for ids in learned]


def test_trl_takes_a_step_on_its_prompts_and_completions(loopback: Loopback, saved: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, saved, repo)
    loss, moved, learned = loopback.owner.call(fine_tuned, repo)
    assert loss > 0
    assert moved > 0
    replies = {step.completion.text for episode in load_rollouts(saved) for step in episode.steps}
    assert all(any(reply in text for reply in replies) and "Current Observation" not in text for text in learned)


def test_examples_are_the_parsed_replies_of_the_kept_episodes(saved: Path) -> None:
    episodes = load_rollouts(saved)
    everything = supervised(episodes, keep=lambda _: True)
    readable = [step for episode in episodes for step in episode.steps if step.action]
    assert [example["completion"][0]["content"] for example in everything] == [step.completion.text for step in readable]
    assert all([message["role"] for message in example["prompt"]] == ["system", "user"] for example in everything)
    won = [episode for episode in episodes if episode.success]
    assert supervised(episodes) == supervised(won, keep=lambda _: True)
