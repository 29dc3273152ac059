"""Episodes go up as a data set that anybody's tools read, grow without being rewritten, and come back as what was played."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from msgrpo_hub.episode import Episode
from msgrpo_hub.evaluation.results import find_results
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.hub.card_rules import split_card
from msgrpo_hub.hub.rollout_reading import load_rollouts, supervised
from msgrpo_hub.hub.uploading import Pushed
from msgrpo_hub.storage.schema import EPISODE_COLUMNS, FORMAT, STEP_COLUMNS
from tests.hub.conftest import msgrpo, refused
from tests.hub_server.lanes import Lane, Loopback

warm = ("torch", "datasets.arrow_dataset", "datasets.load", "msgrpo_hub.hub.rollouts", "msgrpo_hub.training.run")

LAKE = "FrozenLake-NotSlippery-v1"
RUN = (
    "--preset quickstart --updates 3 --groups 2 --group-size 8 --drawn 4 --eval-every 0 --test-episodes 0 --threads 1 "
    "--temperature 2 --save-rollouts"
)
EPISODES = 3 * 2 * 8


def push(folder: Path, repo: str, **options: Any) -> Pushed:
    from msgrpo_hub.hub import push_rollouts

    return push_rollouts(folder, repo, **options)


def load(repo: str, **options: Any) -> list[Episode]:
    from msgrpo_hub.hub import load_rollouts

    return load_rollouts(repo, **options)


def load_table(repo: str, *config: str, **options: Any) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows and features, as the `datasets` library reads them."""
    from datasets import load_dataset  # type: ignore[import-untyped]

    table = load_dataset(repo, *config, **options)
    return list(table), {name: str(feature) for name, feature in table.features.items()}


def train_until(update: int, *arguments: object) -> None:
    """`msgrpo train`, killed when it begins to learn from an update: its episodes are played and not yet kept."""

    def seen(frame: Any, what: str, _: object) -> None:
        nonlocal update
        if what == "call" and frame.f_code.co_qualname == "Trainer.learn":
            update -= 1
            if not update:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.settrace(seen)
    msgrpo("train", *arguments)


def run_example(source: str) -> None:
    exec(source, {})


@pytest.fixture(scope="module")
def saved(loopback_server: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that kept its episodes, in a folder whose path tells a name."""
    folder = tmp_path_factory.mktemp("saved") / "home" / "zaphod" / "lake"
    done = loopback_server.owner.attempt(msgrpo, "train", *RUN.split(), "--output-dir", folder)
    assert done.code == 0, done.err
    return folder


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from msgrpo_hub.evaluation import evaluate
    from msgrpo_hub.evaluation.suites import Suite

    folder = tmp_path_factory.mktemp("evaluated")
    evaluate("random", Suite(name="mine", tasks=(LAKE, "Snake-Short-v1"), episodes=4), folder)
    evaluate(["random", "optimal"], Suite(name="mine", tasks=(LAKE,), episodes=3, split="validation"), folder)
    return folder


def rows(files: dict[str, bytes], config: str, split: str = "") -> list[dict[str, Any]]:
    """The rows of a data set, by pyarrow alone."""
    names = sorted(name for name in files if name.startswith(f"{config}/{split}"))
    return [row for name in names for row in pq.read_table(io.BytesIO(files[name])).to_pylist()]


# ---- what arrives


def test_a_run_is_one_private_commit_with_a_shard_of_each_table_per_block(hub: Lane, saved: Path) -> None:
    repo = hub.repository("dataset")
    pushed = hub.owner.call(push, saved, repo)
    assert pushed.private
    files = hub.files(repo, "dataset")
    assert set(files) == set(pushed.changed)
    shards = {config: {name.partition("/")[2] for name in files if name.startswith(config)} for config in ("default", "steps")}
    assert shards["default"] == shards["steps"]
    assert [re.sub("[0-9a-f]{8,}", "…", name) for name in sorted(shards["steps"])] == [
        f"train-…-{n:05d}-{n:05d}-….parquet" for n in (1, 2, 3)
    ]
    assert hub.commits(repo, "dataset") == [f"{EPISODES} episodes of {LAKE}", "initial commit"]
    assert hub.refs(repo, "dataset") == dict.fromkeys(("refs/heads/main", f"refs/tags/{FORMAT}"), pushed.commit)


def test_a_second_push_makes_no_commit(loopback: Loopback, saved: Path) -> None:
    repo = loopback.repository("dataset")
    first = loopback.owner.call(push, saved, repo)
    again = loopback.owner.call(push, saved, repo)
    assert (again.changed, again.commit) == ((), first.commit)


def test_datasets_loads_and_streams_both_tables_with_the_columns_of_the_card(loopback: Loopback, saved: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, saved, repo)
    files = loopback.files(repo, "dataset")
    for config, columns in (("default", EPISODE_COLUMNS), ("steps", STEP_COLUMNS)):
        named = [] if config == "default" else [config]
        expected = rows(files, config)
        for streaming in (False, True):
            found, features = loopback.owner.call(load_table, repo, *named, split="train", streaming=streaming)
            assert found == expected
            assert list(features) == list(columns)
            assert features["seed"] == "Value('int64')"
        assert len(expected) == EPISODES or config == "steps"
    assert features["log_probs"] == "List(Value('float64'))"
    assert features["prompt"] == "List({'role': Value('string'), 'content': Value('string')})"


def test_the_episodes_come_back_equal_and_are_of_one_commit(loopback: Loopback, saved: Path) -> None:
    repo = loopback.repository("dataset")
    pushed = loopback.owner.call(push, saved, repo)
    played = load_rollouts(saved)
    assert len(played) == EPISODES
    assert all(step.completion.log_probs and step.completion.entropies for episode in played for step in episode.steps)
    assert len({(episode.seed, episode.member) for episode in played}) == EPISODES
    assert loopback.stranger.attempt(load, repo).error == "UserError"  # it is private
    assert loopback.owner.call(load, repo) == played
    assert loopback.owner.call(load, repo, split="train", revision=pushed.commit) == played
    asked = loopback.requests("GET .*/resolve/.*parquet")
    assert asked
    assert all(f"/resolve/{pushed.commit}/" in line for line in asked)


def test_a_row_says_what_the_update_made_of_its_episode(loopback: Loopback, saved: Path) -> None:
    """Advantages are recomputed from the rewards and the penalties; as many are selected as the configuration says."""
    repo = loopback.repository("dataset")
    loopback.owner.call(push, saved, repo)
    files = loopback.files(repo, "dataset")
    heads = rows(files, "default")
    groups: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for head in heads:
        groups.setdefault((head["update"], head["seed"]), []).append(head)
    assert sorted(update for update, _ in groups) == [1, 1, 2, 2, 3, 3]
    varied = 0
    for group in groups.values():
        assert [head["member"] for head in group] == list(range(8))
        returns = [head["reward"] - head["unreadable"] - head["truncated_replies"] for head in group]
        mean = sum(returns) / 8
        spread = (sum((value - mean) ** 2 for value in returns) / 8) ** 0.5
        expected = [(value - mean) / (spread + 1e-8) if spread else 0.0 for value in returns]
        assert [head["advantage"] for head in group] == pytest.approx(expected, abs=1e-5)
        assert sum(head["selected"] for head in group) == (4 if spread else 0)
        varied += spread > 0
    assert varied
    for step in rows(files, "steps"):
        assert step["prompt"][1]["content"].startswith(f"Current Observation:\n{step['observation']}\n")
        assert set(step["optimal_actions"]) <= set(make_game(LAKE).actions)
        assert (step["regret"] == 0) == (step["action"] in step["optimal_actions"]) or step["action"] is None


# ---- growing


@pytest.mark.slow
def test_more_training_adds_files_in_one_commit_and_rewrites_none(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    run, repo = tmp_path / "run", loopback.repository("dataset")
    assert loopback.owner.attempt(train_until, 3, *RUN.split(), "--output-dir", run).code == -signal.SIGKILL
    first = loopback.owner.call(push, run, repo)
    before = loopback.files(repo, "dataset")
    assert len(before) == 1 + 2 * 2
    assert len(loopback.owner.call(load, repo)) == 2 * 2 * 8

    assert loopback.owner.attempt(msgrpo, "train", "--resume", "--output-dir", run).code == 0
    second = loopback.owner.call(push, run, repo)
    after = loopback.files(repo, "dataset")
    assert {name for name in before if before[name] != after[name]} == {"README.md"}
    assert set(second.changed) == {"README.md", *(after.keys() - before.keys())}
    assert len(after) == 1 + 3 * 2
    assert len(loopback.commits(repo, "dataset")) == 3  # with the one that made the repository
    assert not set(first.changed) - set(after)
    assert loopback.owner.call(load, repo) == load_rollouts(saved)  # not one lost, not one twice
    found, _ = loopback.owner.call(load_table, repo, split="train")
    assert len(found) == EPISODES


def test_shards_that_were_published_stay_whatever_this_machine_would_write_today(
    loopback: Loopback, saved: Path, tmp_path: Path
) -> None:
    """Another version of pyarrow writes other bytes for the same rows."""
    repo, folder = loopback.repository("dataset"), tmp_path / "dry"
    assert loopback.owner.attempt(msgrpo, "push", "rollouts", saved, repo, "--dry-run", folder).code == 0
    for path in folder.rglob("*.parquet"):
        pq.write_table(pq.read_table(path), path, compression="snappy")
    loopback.owner.call(upload_all, str(folder), repo)
    old = loopback.files(repo, "dataset")
    assert loopback.owner.call(push, saved, repo).changed == ()
    assert loopback.files(repo, "dataset") == old


def upload_all(folder: str, repo: str) -> None:
    from huggingface_hub import HfApi

    HfApi().create_repo(repo, repo_type="dataset", exist_ok=True)
    HfApi().upload_folder(folder_path=folder, repo_id=repo, repo_type="dataset")


def test_a_repository_with_other_episodes_or_anything_else_is_left_alone(
    loopback: Loopback, saved: Path, evaluated: Path, tmp_path: Path
) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, evaluated, repo)
    words = refused(loopback.owner.attempt(msgrpo, "push", "rollouts", saved, repo))
    assert f"{repo!r} holds episodes of another run" in words
    (tmp_path / "notes.txt").write_text("mine")
    other = loopback.repository("dataset")
    loopback.owner.call(upload_all, str(tmp_path), other)
    assert "holds something else (notes.txt)" in refused(loopback.owner.attempt(msgrpo, "push", "rollouts", saved, other))
    assert set(loopback.files(other, "dataset")) == {"notes.txt"}


def test_a_data_set_of_the_first_build_is_loaded_and_gets_no_shards_of_another_format(loopback: Loopback) -> None:
    first, repo = Path(__file__).parents[1] / "storage" / "first_build", loopback.repository("dataset")
    loopback.owner.call(upload_all, str(first / "dataset"), repo)
    loopback.owner.call(tag, repo, "msgrpo-rollouts-v1")
    assert loopback.owner.call(load, repo) == load_rollouts(first / "run")
    before = loopback.files(repo, "dataset")
    words = refused(loopback.owner.attempt(msgrpo, "push", "rollouts", first / "run", repo))
    assert f"{repo!r} holds shards of the earlier format msgrpo-rollouts-v1, which are never rewritten" in words
    assert loopback.files(repo, "dataset") == before
    other = loopback.repository("dataset")
    loopback.owner.call(push, first / "run", other)
    assert loopback.owner.call(load, other) == load_rollouts(first / "run")


def tag(repo: str, name: str) -> None:
    from huggingface_hub import HfApi

    HfApi().create_tag(repo, tag=name, repo_type="dataset")


# ---- evaluations


def test_an_evaluation_becomes_its_splits_with_advantage_and_selection_left_empty(loopback: Loopback, evaluated: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, evaluated, repo)
    files = loopback.files(repo, "dataset")
    assert [len(rows(files, "default", split)) for split in ("train", "validation", "test")] == [0, 6, 8]
    for config in ("default", "steps"):
        assert {(row["advantage"], row["selected"], row["update"]) for row in rows(files, config)} == {(None, None, None)}
    assert {row["player"] for row in rows(files, "default")} == {"random", "optimal"}
    played = [episode for result in find_results(evaluated) for episode in result.episodes]
    loaded = loopback.owner.call(load, repo)
    assert sorted(loaded, key=str) == sorted(played, key=str)
    assert [episode.seed for episode in loopback.owner.call(load, repo, split="validation")] == [
        episode_seed(LAKE, "validation", index) for _ in ("optimal", "random") for index in range(3)
    ]
    found, _ = loopback.owner.call(load_table, repo, "steps", split="test")
    assert found == rows(files, "steps", "test")


# ---- who sees it, and what


def test_visibility_is_asked_of_new_repositories_and_kept_by_old_ones(loopback: Loopback, evaluated: Path) -> None:
    repo = loopback.repository("dataset")
    done = loopback.owner.attempt(msgrpo, "push", "rollouts", evaluated, repo, "--public", "--message", "Mine")
    assert done.code == 0, done.err
    assert done.out == f"{loopback.endpoint}/datasets/{repo}\n"
    assert loopback.commits(repo, "dataset")[0] == "Mine"
    assert not loopback.owner.call(push, evaluated, repo).private
    assert loopback.nobody.call(load, repo)
    assert "is public, not private as asked" in refused(
        loopback.owner.attempt(msgrpo, "push", "rollouts", evaluated, repo, "--private")
    )
    told = loopback.owner.attempt(msgrpo, "push", "rollouts", evaluated, loopback.repository("dataset"))
    assert "a new one is private, unless --public is given" in told.err


def test_a_pull_request_and_a_branch_can_be_asked_for(loopback: Loopback, evaluated: Path) -> None:
    repo = loopback.repository("dataset")
    assert loopback.owner.call(push, evaluated, repo, create_pr=True).pull_request
    assert loopback.files(repo, "dataset") == {}
    loopback.owner.call(push, evaluated, repo, revision="evaluations")
    assert loopback.files(repo, "dataset") == {}
    assert len(loopback.files(repo, "dataset", "evaluations")) == 9
    assert len(loopback.owner.call(load, repo, revision="evaluations")) == 14


def test_a_dry_run_writes_exactly_what_a_push_sends_and_needs_nobody(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    repo, folder = loopback.repository("dataset"), tmp_path / "dry"
    done = loopback.nobody.attempt(msgrpo, "push", "rollouts", saved, repo, "--dry-run", folder, "--json")
    assert done.code == 0, done.err
    loopback.owner.call(push, saved, repo)
    written = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert written == loopback.files(repo, "dataset")
    assert json.loads(done.out)["files"] == sorted(written)


def test_no_path_and_no_name_of_the_machine_gets_in(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    run, mine = tmp_path / "home" / "zaphod" / "run", tmp_path / "home" / "zaphod" / "my-base"
    shutil.copytree(saved, run)
    from msgrpo_hub.downloads.names import pocket_path

    shutil.copytree(pocket_path(), mine)
    (run / "config.toml").write_text((run / "config.toml").read_text().replace('"pocket"', f'"{mine}"'))
    repo = loopback.repository("dataset")
    loopback.owner.call(push, run, repo)
    files = loopback.files(repo, "dataset")
    told = [name.encode() for name in files] + [files["README.md"]]
    told += [json.dumps(rows(files, config)).encode() for config in ("default", "steps")]
    told += [pq.read_metadata(io.BytesIO(content)).metadata[b"ARROW:schema"] for name, content in files.items() if "/" in name]
    for secret in (b"zaphod", b"my-base", b"hf_test", b"/tmp/", b"/home/", str(tmp_path).encode()):
        assert not [text for text in told if secret in text], secret
    assert {row["base"] for row in rows(files, "default")} == {"folder"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["@/none"], "no episodes in '@/none': expected the folder of `msgrpo train --save-rollouts`"),
        (["@/none", "--base", "ada/base"], "--base is for `msgrpo push adapter`"),
    ],
)
def test_what_cannot_be_pushed_is_said_in_one_line(loopback: Loopback, tmp_path: Path, arguments: list[str], words: str) -> None:
    given = [argument.replace("@", str(tmp_path)) for argument in arguments]
    said = refused(loopback.owner.attempt(msgrpo, "push", "rollouts", given[0], "ada/lake", *given[1:]))
    assert words.replace("@", str(tmp_path)) in said
    assert not loopback.hub.repositories


def test_a_record_that_does_not_replay_is_not_pushed(loopback: Loopback, saved: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(saved, tmp_path / "run"))
    path = run / "rollouts" / "steps" / "train-00002.parquet"
    table = pq.ParquetFile(path).read()
    column = table.schema.get_field_index("reward")
    pq.write_table(table.set_column(column, "reward", [[7.0, *table["reward"].to_pylist()[1:]]]), path)
    words = refused(loopback.owner.attempt(msgrpo, "push", "rollouts", run, loopback.repository("dataset")))
    assert "does not replay" in words
    assert "reward 7 on turn 1, where the rules give 0" in words
    assert not loopback.hub.repositories


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


@pytest.mark.slow
def test_every_example_of_the_card_runs(loopback: Loopback, saved: Path, evaluated: Path) -> None:
    for folder in (saved, evaluated):
        repo = loopback.repository("dataset")
        loopback.owner.call(push, folder, repo)
        sources = list(examples(loopback.files(repo, "dataset")["README.md"]))
        assert len(sources) == 3
        for source in sources:
            done = loopback.owner.attempt(run_example, source)
            assert (done.code, "Ignoring" in done.err) == (0, False), done.err  # part of a malformed card


def test_a_card_shows_how_to_learn_from_it_only_where_there_is_something_to_learn(tmp_path: Path) -> None:
    from msgrpo_hub.evaluation import evaluate
    from msgrpo_hub.evaluation.suites import Suite
    from msgrpo_hub.hub.rollouts import stage_rollouts

    for player, blocks in (("random", 2), ("optimal", 3)):
        evaluate(player, Suite(name="mine", tasks=(LAKE,), episodes=1), tmp_path / player)
        (tmp_path / f"{player}-staged").mkdir()
        stage_rollouts(tmp_path / player, "ada/lake", tmp_path / f"{player}-staged")
        assert len(list(examples((tmp_path / f"{player}-staged" / "README.md").read_bytes()))) == blocks


# ---- verification


def download(repo: str, folder: str) -> None:
    from huggingface_hub import snapshot_download

    snapshot_download(repo, repo_type="dataset", local_dir=folder)


def test_a_downloaded_data_set_passes_verification_and_a_tampered_one_does_not(
    loopback: Loopback, saved: Path, tmp_path: Path
) -> None:
    repo, folder = loopback.repository("dataset"), tmp_path / "downloaded"
    loopback.owner.call(push, saved, repo)
    loopback.owner.call(download, repo, str(folder))
    for place in (saved, folder):
        done = loopback.nobody.attempt(msgrpo, "verify", place)
        assert (done.code, done.out) == (0, f"ok    {EPISODES:>6} episodes  training · {LAKE}\n"), done.err
    path = sorted(folder.glob("steps/*.parquet"))[1]
    table = pq.ParquetFile(path).read()
    rewards = table["reward"].to_pylist()
    rewards[-1] += 1
    pq.write_table(table.set_column(table.schema.get_field_index("reward"), "reward", [rewards]), path)
    done = loopback.nobody.attempt(msgrpo, "verify", folder)
    assert (done.code, done.out.startswith("WRONG")) == (2, True)
    assert re.search(r"train-\S+parquet, seed \d+, member \d: .*reward \d on turn \d+, where the rules give", done.out)


# ---- what is refused


def change(folder: Path, repo: str, name: str, content: bytes) -> None:
    for path in folder.glob(name):
        path.write_bytes(content)
    upload_all(str(folder), repo)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("steps/*.parquet", "cannot be read .*: expected Parquet in the format msgrpo-episodes-v2"),
        ("default/*.parquet", "cannot be read"),
    ],
)
def test_a_data_set_that_is_none_is_refused_in_one_line(
    loopback: Loopback, evaluated: Path, tmp_path: Path, name: str, words: str
) -> None:
    repo, folder = loopback.repository("dataset"), tmp_path / "dry"
    assert loopback.owner.attempt(msgrpo, "push", "rollouts", evaluated, repo, "--dry-run", folder).code == 0
    loopback.owner.call(change, folder, repo, name, b"import os")
    done = loopback.owner.attempt(load, repo)
    assert done.error == "UserError"
    assert re.search(words, done.message)
    assert "\n" not in done.message


def test_a_repository_without_rollouts_is_refused(loopback: Loopback, tmp_path: Path) -> None:
    repo = loopback.repository("dataset")
    (tmp_path / "code.py").write_text("raise SystemExit")
    loopback.owner.call(upload_all, str(tmp_path), repo)
    done = loopback.owner.attempt(load, repo)
    assert (done.error, "no rollouts in" in done.message) == ("UserError", True)
    assert not loopback.requests("GET .*/resolve/")


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


@pytest.mark.slow
def test_trl_takes_a_step_on_its_prompts_and_completions(loopback: Loopback, saved: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, saved, repo)
    loss, moved, learned = loopback.owner.call(fine_tuned, repo)
    assert loss > 0
    assert moved > 0
    replies = {step.completion.text for episode in load_rollouts(saved) for step in episode.steps}
    assert all(any(reply in text for reply in replies) and "Current Observation" not in text for text in learned)


def test_examples_are_the_readable_replies_of_the_episodes_that_are_worth_it(saved: Path) -> None:
    episodes = load_rollouts(saved)
    everything = supervised(episodes, keep=lambda _: True)
    readable = [step for episode in episodes for step in episode.steps if step.action]
    assert [example["completion"][0]["content"] for example in everything] == [step.completion.text for step in readable]
    assert all([message["role"] for message in example["prompt"]] == ["system", "user"] for example in everything)
    won = [episode for episode in episodes if episode.success]
    assert supervised(episodes) == supervised(won, keep=lambda _: True)
