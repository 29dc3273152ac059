"""A run leaves the same bytes in any folder and in any batches, is named by its settings, and refuses bad input in a line."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.agent.policy import Prompt
from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, format_hash
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import compare, evaluate
from msgrpo_hub.evaluation.results import Result, find_results, load_result, player_names, run_hash
from msgrpo_hub.evaluation.runner import run_config, run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.tables import near_draws
from msgrpo_hub.evaluation.verify import checked_run, problems, verify
from msgrpo_hub.players.registry import identify
from msgrpo_hub.players.settings import PlayerSettings
from tests.evaluation.played import FINAL, FIRM, LAKE, MIXED, SHORT, SLIPPERY, Silent, Talker, contents, talker
from tests.evaluation.tampering import renamed

# ---- the same files


def test_a_run_leaves_four_files_with_the_same_bytes_in_other_batches_and_beside_other_players(tmp_path: Path) -> None:
    one = evaluate(["random", "greedy"], MIXED, tmp_path / "one")
    for batch_size in (1, 7):
        for name in ("greedy", "random"):
            evaluate(name, MIXED, tmp_path / str(batch_size), batch_size=batch_size)
        assert contents(tmp_path / "one") == contents(tmp_path / str(batch_size))
    assert len(one) == 2 * len(MIXED.tasks)
    for result in one:
        assert {path.name for path in result.folder.iterdir()} == FINAL
        assert result.folder.name == run_hash(json.loads((result.folder / "config.lock.json").read_text()))
        assert result.complete
        assert result == load_result(result.folder)
    seeds = [{result.task: [episode.seed for episode in result.episodes] for result in half} for half in (one[:3], one[3:])]
    assert seeds[0] == seeds[1]


@pytest.mark.parametrize(("temperature", "task", "episodes"), [(0.0, SLIPPERY, 3), (1.0, SLIPPERY, 3), (1.0, SHORT, 2)])
def test_the_built_in_base_says_the_same_alone_as_in_a_batch(
    temperature: float, task: str, episodes: int, tmp_path: Path
) -> None:
    suite = Suite(name="mine", tasks=(task,), episodes=episodes)
    player = identify("pocket", PlayerSettings(temperature=temperature, max_new_tokens=32))
    for batch_size in (1, 50):
        run_task(player, suite, task, tmp_path / str(batch_size), batch_size)
    alone, together = find_results(tmp_path)
    assert len({step.completion.text for episode in alone.episodes for step in episode.steps}) > 3
    assert (alone.episodes, alone.scores) == (together.episodes, together.scores)


def test_a_run_is_named_by_everything_that_changes_its_result() -> None:
    player = talker(Talker())
    other = replace(player, identity={**player.identity, "version": 2})
    suites = [LAKE, replace(LAKE, episodes=13), replace(LAKE, split="validation"), replace(LAKE, name="other")]
    configs = [run_config(player, suite, SLIPPERY) for suite in suites]
    configs += [run_config(other, LAKE, SLIPPERY), run_config(player, LAKE, f"{SLIPPERY}:grid"), run_config(player, LAKE, SHORT)]
    configs += [configs[0] | {"harness": 0}, configs[0] | {"task_hash": "0"}]
    assert len({run_hash(config) for config in configs}) == len(configs)
    assert run_hash(dict(reversed(configs[0].items()))) == run_hash(configs[0])


def test_the_batch_size_names_the_runs_of_players_that_round_by_the_batch() -> None:
    players = [identify(name, PlayerSettings()) for name in ("random", "endpoint:http://127.0.0.1:9/v1#m", "pocket")]
    hashes = [[run_hash(run_config(player, LAKE, SLIPPERY, size)) for size in (1, 50)] for player in players]
    assert [one == other for one, other in hashes] == [True, True, False]


# ---- the content of the files


def test_every_reply_its_tokens_and_its_status_are_kept(tmp_path: Path) -> None:
    policy = Talker()
    result = run_task(talker(policy), LAKE, SLIPPERY, tmp_path, batch_size=1)
    rows = pq.read_table(result.folder / "steps.parquet").to_pylist()
    assert len(rows) == len(policy.said) > 30
    told = [(seen, reply.text.replace("\ud800", "?"), reply.finish, *(reply.usage or ())) for seen, reply in policy.said]
    assert [tuple(row[n] for n in ("observation", "reply", "finish", "prompt_tokens", "reply_tokens")) for row in rows] == told
    for row in rows:
        acted = "<action>" in row["reply"]
        assert row["status"] == ("ok" if acted else "truncated_reply" if row["finish"] == "length" else "unreadable")
        assert (row["action"] is not None) == acted
        assert row["legal"] == (row["action"] in row["legal_actions"])
    assert {row["status"] for row in rows} == {"ok", "truncated_reply", "unreadable"}
    assert all(after in (0, before + 1) for before, after in pairwise(row["turn"] for row in rows))
    heads = pq.read_table(result.folder / "episodes.parquet").to_pylist()
    assert [(head["index"], head["seed"]) for head in heads] == list(enumerate(LAKE.seeds(SLIPPERY)))
    for name in ("prompt_tokens", "reply_tokens"):
        assert result.summary[name] == sum(head[name] for head in heads) == sum(row[name] for row in rows)


class Near(Talker):
    """Every third reply has a near draw."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        replies = super().complete(prompts, rngs)
        return [replace(reply, near_draws=int(len(reply.text) % 3 == 0)) for reply in replies]


def test_a_run_counts_its_near_draws_also_after_an_interruption(tmp_path: Path) -> None:
    result = run_task(talker(Near()), LAKE, SLIPPERY, tmp_path / "whole", 5)
    count = sum(len(step.completion.text) % 3 == 0 for episode in result.episodes for step in episode.steps)
    assert result.summary["near_draws"] == count > 3
    part = run_task(talker(Near(down=True)), LAKE, SLIPPERY, tmp_path / "part", 5)
    assert 0 < part.summary["near_draws"] < count
    assert run_task(talker(Near()), LAKE, SLIPPERY, tmp_path / "part", 5).summary == result.summary
    [line] = near_draws([result])
    assert line.startswith(f"talker: {count} of {result.summary['reply_tokens']:,} samples are within 0.0001 of a boundary")


# ---- refused in one line


def test_two_players_of_one_name_have_two_folders_and_another_run_in_a_folder_is_refused(tmp_path: Path) -> None:
    mine = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    other = run_task(replace(talker(Talker()), identity={"kind": "test", "player": "other"}), LAKE, SLIPPERY, tmp_path)
    assert mine.folder != other.folder
    assert len(find_results(tmp_path)) == 2
    shutil.rmtree(mine.folder)
    shutil.copytree(other.folder, mine.folder)
    with pytest.raises(UserError, match="has a different run from the one its name says: move it"):
        run_task(talker(Silent()), LAKE, SLIPPERY, tmp_path)


def test_rewards_outside_the_range_that_a_game_declares_are_one_line_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as wrong:
        wrong.setattr("msgrpo_hub.evaluation.summary.return_range", lambda _: (5.0, 6.0))
        with pytest.raises(UserError, match=f"{SLIPPERY}: .* correct the reward_range"):
            run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    assert run_task(talker(Silent()), LAKE, SLIPPERY, tmp_path).complete


def test_an_output_folder_that_cannot_be_written_to_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none")):
        with pytest.raises(UserError, match=r"cannot write to .*choose another output folder"):
            evaluate("random", LAKE, folder)


def test_players_play_only_the_tasks_that_they_know_and_the_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = replace(MIXED, episodes=1)
    assert [result.task for result in evaluate("optimal", one, tmp_path)] == [SLIPPERY]
    assert f"optimal does not play {SHORT}, {SHORT}:rotated: left out" in capsys.readouterr().err.splitlines()
    assert [result.task for result in evaluate("planner", one, tmp_path)] == list(MIXED.tasks[1:])
    with pytest.raises(UserError, match="'optimal' can play no task of the suite 'snakes': choose another player or suite"):
        evaluate("optimal", Suite(name="snakes", tasks=(SHORT,), episodes=1), tmp_path)


# ---- prompt formats and identities


FORTY = Suite(name="mine", tasks=(FIRM,), episodes=40)

OWN = """
from msgrpo_hub.agent.prompt_formats import TaggedFormat

class Shouted(TaggedFormat):
    def __init__(self):
        super().__init__(name="shouted", request="ANSWER!")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "shouted_format.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("shouted_format", None)


def played(folder: Path, prompt_format: str = "", suite: Suite = FORTY) -> Result:
    [result] = evaluate("greedy", suite, folder, settings=PlayerSettings(prompt_format=prompt_format))
    return result


def test_two_formats_give_two_runs_that_compare(tmp_path: Path) -> None:
    first, second = played(tmp_path / "a"), played(tmp_path / "b", "json")
    assert first.config["task_hash"] == second.config["task_hash"]
    assert run_hash(first.config) != run_hash(second.config)
    assert [result.prompt_format for result in (first, second)] == ["think-action", "json"]
    assert second.episodes[0].steps[0].completion.text == f'{{"action": "{second.episodes[0].steps[0].action}"}}'
    [row] = compare(tmp_path / "a", tmp_path / "b")
    assert (row.rewards.n, row.rewards.difference) == (40, 0)
    assert problems(first) == problems(second) == []
    names = ["greedy (prompt_format think-action)", "greedy (prompt_format json)"]
    assert list(player_names([first, second]).values()) == names


def test_adapters_of_several_runs_are_named_by_the_folders_of_their_results(tmp_path: Path) -> None:
    result, results = played(tmp_path), []
    for run, commit in (("q2", "1" * 40), ("q3", "2" * 40)):
        identity = result.config["identity"] | {"adapter_commit": commit}
        config = result.config | {"player": "folder:adapter", "identity": identity}
        folder = tmp_path / f"{run}__adapter" / commit / "lake" / run_hash(config)
        results.append(replace(result, config=config, folder=folder))
    assert list(player_names(results).values()) == ["folder:adapter (q2__adapter)", "folder:adapter (q3__adapter)"]
    elsewhere = [replace(one, folder=tmp_path) for one in results]
    assert next(iter(player_names(elsewhere).values())) == f"folder:adapter (adapter_commit {'1' * 12})"


def test_a_run_under_the_name_of_another_format_or_with_another_hash_does_not_verify(tmp_path: Path) -> None:
    wrong = PROMPT_FORMATS["think-action"]
    run = renamed(played(tmp_path, "json"), played(tmp_path, "json").config | {"prompt_format_hash": "0" * 16})
    assert problems(run)[0] == "its prompt format json differs from the format of this version"
    run = renamed(run, run.config | {"prompt_format": wrong.name, "prompt_format_hash": format_hash(wrong)})
    assert "its reply does not parse to" in "; ".join(problems(run))


@pytest.mark.usefixtures("own")
def test_a_format_of_ones_own_is_verified_without_its_replies_and_never_imported(tmp_path: Path) -> None:
    result = played(tmp_path / "own", "shouted_format:Shouted")
    assert result.prompt_format == "shouted"
    assert run_hash(played(tmp_path / "plain").config) != run_hash(result.config)
    del sys.modules["shouted_format"]
    [row] = verify(tmp_path / "own")
    assert row["problems"] == []
    assert row["unchecked"][0] == "replies not checked: the format shouted is not built in"
    with pytest.raises(UserError, match="replies not checked"):
        checked_run(result.folder)
    assert "shouted_format" not in sys.modules
