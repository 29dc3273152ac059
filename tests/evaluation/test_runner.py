"""Runs: killed, cut, failed, split and repeated, they end with the same files to the byte; failures are never play."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import find_results, load_result, run_hash
from msgrpo_hub.evaluation.runner import run_config, run_task
from msgrpo_hub.evaluation.scores import score_episode, score_steps
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.games import GAMES, episode_seed, make_game
from msgrpo_hub.players.identity import Player, PlayerSettings, identify
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage import run_files

SLIPPERY, SHORT = "FrozenLake-Slippery-v1", "Snake-Short-v1"
LAKE = Suite(name="mine", tasks=(SLIPPERY,), episodes=12)
MIXED = Suite(name="mixed", tasks=(SLIPPERY, SHORT, f"{SHORT}:rotated"), episodes=9)
FINAL = {"config.lock.json", "episodes.parquet", "steps.parquet", "results.json", "timing.json"}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of every run but the one with seconds in it."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "timing.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@dataclass
class Talker:
    """A random player with a way with words; its server may be down for some episodes."""

    down: bool = False
    asked: int = 0
    """Prompts on a first turn: episodes begun."""
    said: list[tuple[str, Completion]] = field(default_factory=list)

    WORDS = ("", "so\n\r\u2028", "é—雪🐍", "\x00\x1b[0m", '"}\\', "<think>hm</think>", "half \ud800 a pair")

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        self.asked += sum(prompt.state.turn == 0 for prompt in prompts)
        return [self.reply(prompt, rng) for prompt, rng in zip(prompts, rngs, strict=True)]

    def reply(self, prompt: Prompt, rng: np.random.Generator) -> Completion:
        word, action = (str(rng.choice(options)) for options in (range(7), prompt.game.actions))
        if self.down and prompt.state.turn == 2 and sum(map(sum, prompt.state.holes)) % 2:
            return Completion(text="", error="HTTP 503 after 6 attempts")
        text = self.WORDS[int(word)] + ("" if rng.random() < 0.2 else f"<action>{action}</action>")
        reply = Completion(text=text, finish="length" if rng.random() < 0.1 else "stop", usage=(len(prompt.user), len(text)))
        self.said.append((prompt.observation, reply))
        return reply


def talker(policy: Any) -> Player:
    return Player(name="talker", policy=policy, identity={"kind": "test", "player": "talker"}, folder="talker/v1")


class Silent:
    """Must not be asked."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        raise AssertionError("a finished episode was played again")


# ---- the same files


def test_a_run_leaves_its_five_files_and_repeated_elsewhere_the_same_bytes(tmp_path: Path) -> None:
    one, two = (evaluate(["random", "greedy"], MIXED, tmp_path / name) for name in ("one", "two"))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert len(one) == len(two) == 2 * len(MIXED.tasks)
    for result in one:
        assert {path.name for path in result.folder.iterdir()} == FINAL
        assert result.folder.name == run_hash(json.loads((result.folder / "config.lock.json").read_text()))
        assert result.complete
        assert result == load_result(result.folder)


@pytest.mark.parametrize("batch_size", [1, 7, 50])
def test_results_do_not_depend_on_the_batch_size(batch_size: int, tmp_path: Path) -> None:
    evaluate(["random", "random-safe"], MIXED, tmp_path / "all")
    evaluate(["random", "random-safe"], MIXED, tmp_path / "few", batch_size=batch_size)
    assert contents(tmp_path / "all") == contents(tmp_path / "few")


@pytest.mark.parametrize(("temperature", "task", "episodes"), [(0.0, SLIPPERY, 3), (1.0, SLIPPERY, 3), (1.0, SHORT, 2)])
def test_the_built_in_base_says_the_same_alone_as_in_company(
    temperature: float, task: str, episodes: int, tmp_path: Path
) -> None:
    suite = Suite(name="mine", tasks=(task,), episodes=episodes)
    player = identify("pocket", PlayerSettings(temperature=temperature, max_new_tokens=32))
    for batch_size in (1, 50):
        run_task(player, suite, task, tmp_path / str(batch_size), batch_size)
    replies = {
        text for result in find_results(tmp_path) for episode in result.episodes for text in map(reply_text, episode.steps)
    }
    assert len(replies) > 3
    assert contents(tmp_path / "1") == contents(tmp_path / "50")


def reply_text(step: Any) -> str:
    return str(step.completion.text)


def test_players_in_one_command_share_nothing_but_the_seeds(tmp_path: Path) -> None:
    both = evaluate(["random", "random-safe"], MIXED, tmp_path / "both")
    for name in ("random-safe", "random"):
        evaluate(name, MIXED, tmp_path / "alone")
    assert contents(tmp_path / "both") == contents(tmp_path / "alone")
    seeds = {result.task: [episode.seed for episode in result.episodes] for result in both[:3]}
    assert seeds == {result.task: [episode.seed for episode in result.episodes] for result in both[3:]}


def test_every_episode_has_a_seed_of_its_own_and_it_is_the_suite_s(tmp_path: Path) -> None:
    """Seen elsewhere: one seed for all episodes; only the first board seeded."""
    [result] = evaluate("random", LAKE, tmp_path)
    assert [episode.seed for episode in result.episodes] == LAKE.seeds(SLIPPERY)
    assert [episode.seed for episode in result.episodes] == [episode_seed(SLIPPERY, "test", index) for index in range(12)]
    assert len({episode.steps[0].observation for episode in result.episodes}) > 6
    assert {episode.member for episode in result.episodes} == {0}


# ---- kill -9


def killed(work: Any, moment: int) -> bool:
    """Does some work in another process, which gets a SIGKILL at the n-th call or return; whether it came to that."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)
        left = moment

        def count(frame: Any, event: str, argument: Any) -> None:  # noqa: ARG001
            nonlocal left
            if frame.f_code.co_filename.endswith(("storage/run_files.py", "storage/files.py", "evaluation/runner.py")):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.setprofile(count)
        work()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def test_a_run_killed_at_any_moment_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    """Also where the call that goes on is killed in turn, and with another batch size."""
    suite = replace(LAKE, episodes=4)
    whole = run_task(talker(Talker()), suite, SLIPPERY, tmp_path / "whole")
    moment, died = 1, 0
    while True:
        folder = tmp_path / str(moment)
        if not killed(lambda folder=folder: run_task(talker(Talker()), suite, SLIPPERY, folder, 2), moment):
            break
        died += 1
        killed(lambda folder=folder: run_task(talker(Talker()), suite, SLIPPERY, folder, 4), moment // 2 + 1)
        again = run_task(talker(Talker()), suite, SLIPPERY, folder, 3)
        assert again == replace(whole, folder=again.folder)
        assert contents(folder) == contents(tmp_path / "whole"), moment
        moment += max(1, moment // 6)
    assert died > 20


def test_a_log_cut_at_any_byte_goes_on_to_the_same_bytes_and_plays_only_what_is_missing(tmp_path: Path) -> None:
    suite = replace(LAKE, episodes=8)
    whole = run_task(talker(Talker()), suite, SLIPPERY, tmp_path / "whole")
    failed = run_task(talker(Talker(down=True)), suite, SLIPPERY, tmp_path / "failed", 3)
    log = (failed.folder / "episodes.jsonl").read_bytes()
    ends = [i for i, byte in enumerate(log) if byte == ord("\n")]
    cuts = {*range(0, len(log), 331), *(end + step for end in ends for step in (-1, 0, 1)), len(log)}
    assert len(ends) >= 3
    assert max(log) > 127  # some characters are several bytes long
    for cut in sorted(cuts):
        folder = tmp_path / "cut" / failed.folder.relative_to(tmp_path / "failed")
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "episodes.jsonl").write_bytes(log[:cut])
        policy = Talker()
        run_task(talker(policy), suite, SLIPPERY, tmp_path / "cut")
        assert contents(tmp_path / "cut") == contents(tmp_path / "whole"), cut
        assert policy.asked == suite.episodes - sum(end < cut for end in ends)
    assert whole.complete


# ---- failures are not play


def test_an_episode_that_a_server_failed_is_not_scored_and_is_all_that_the_next_call_plays(tmp_path: Path) -> None:
    """Seen elsewhere: 99 of 340 episodes scored as deaths that were a server's errors; crashed episodes left out of a mean."""
    whole = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path / "whole")
    policy = Talker(down=True)
    part = run_task(talker(policy), LAKE, SLIPPERY, tmp_path / "part", 5)
    failed = LAKE.episodes - len(part.episodes)
    assert 0 < failed < LAKE.episodes
    assert not part.complete
    assert part == load_result(part.folder)
    assert (part.summary["complete"], part.summary["failed"], part.summary["episodes"]) == (False, failed, len(part.episodes))
    kept = {episode.seed: score for episode, score in zip(whole.episodes, whole.scores, strict=True)}
    assert part.scores == [kept[episode.seed] for episode in part.episodes]
    assert part.summary["reward"]["mean"] == np.mean([score.reward for score in part.scores])
    rows = pq.read_table(part.folder / "steps.parquet").to_pylist()
    assert len(rows) == part.summary["steps"] == sum(len(episode.steps) for episode in part.episodes)
    assert "HTTP 503" not in "".join(path.read_bytes().decode(errors="replace") for path in part.folder.iterdir())

    again = run_task(talker(Talker(down=True)), LAKE, SLIPPERY, tmp_path / "part")
    assert again.summary == part.summary
    policy = Talker()
    assert run_task(talker(policy), LAKE, SLIPPERY, tmp_path / "part").complete
    assert policy.asked == failed
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


class Dead:
    """A server that never answers."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        return [Completion(text="", error="no answer") for _ in prompts]


@pytest.mark.parametrize("task", MIXED.tasks)
def test_a_run_of_which_nothing_was_answered_has_no_figures_rather_than_zeros(task: str, tmp_path: Path) -> None:
    result = run_task(talker(Dead()), MIXED, task, tmp_path)
    assert (result.complete, result.episodes, result.summary["failed"]) == (False, [], MIXED.episodes)
    figures = ("reward", "success", "normalised", "luck_adjusted", "regret_per_step", "optimal_rate", "prompt_tokens")
    assert [result.summary[name] for name in figures] == [None] * len(figures)
    assert result.summary["references"] == {}
    assert load_result(result.folder) == result


def test_a_mistake_of_the_user_in_the_middle_loses_nothing_that_was_played(tmp_path: Path) -> None:
    class Refused(Talker):
        def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
            if self.asked > 8:
                raise UserError("the prompt is longer than the context: take another model")
            return super().complete(prompts, rngs)

    with pytest.raises(UserError, match="longer than the context"):
        run_task(talker(Refused()), LAKE, SLIPPERY, tmp_path / "part", 4)
    policy = Talker()
    run_task(talker(policy), LAKE, SLIPPERY, tmp_path / "part", 4)
    assert policy.asked == 4
    run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path / "whole")
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


def test_a_complete_run_is_not_played_again(tmp_path: Path) -> None:
    first = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    before = contents(tmp_path)
    assert run_task(talker(Silent()), LAKE, SLIPPERY, tmp_path) == first
    assert contents(tmp_path) == before


def test_a_log_left_over_by_a_kill_at_the_very_end_is_cleared_away(tmp_path: Path) -> None:
    result = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    before = contents(tmp_path)
    (result.folder / "episodes.jsonl").write_text("")
    run_task(talker(Silent()), LAKE, SLIPPERY, tmp_path)
    assert contents(tmp_path) == before


# ---- what is kept


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
    turns = [row["turn"] for row in rows]
    assert all(turn in (0, before + 1) for before, turn in pairwise(turns))
    heads = pq.read_table(result.folder / "episodes.parquet").to_pylist()
    assert [head["index"] for head in heads] == list(range(12))
    assert [head["seed"] for head in heads] == LAKE.seeds(SLIPPERY)
    for name in ("prompt_tokens", "reply_tokens"):
        assert result.summary[name] == sum(head[name] for head in heads) == sum(row[name] for row in rows)


def test_the_built_in_base_keeps_the_number_of_tokens_that_it_read_and_wrote(tmp_path: Path) -> None:
    [result] = evaluate("pocket", replace(LAKE, episodes=2), tmp_path, settings=PlayerSettings(max_new_tokens=24))
    for step in (step for episode in result.episodes for step in episode.steps):
        assert step.completion.prompt_tokens
        assert step.completion.prompt_tokens > 100
        assert 1 <= (step.completion.reply_tokens or 0) <= 24
        assert (step.status == "truncated_reply") == (step.action is None and step.completion.finish == "length")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    game_id=st.sampled_from([*GAMES, f"{SHORT}:compass", f"{SLIPPERY}:grid"]),
    seeds=st.lists(st.integers(0, 2**63 - 1), max_size=3, unique=True),
    words=st.lists(texts, min_size=1, max_size=5),
    usage=st.none() | st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)),
)
@settings(max_examples=25, deadline=None)
def test_what_is_written_is_read_as_equal_objects(
    game_id: str,
    seeds: list[int],
    words: list[str],
    usage: tuple[int, int] | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    class Wordy:
        def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
            replies = ScriptedPolicy(choose_random).complete(prompts, rngs)
            prefixes = [words[prompt.state.turn % len(words)] for prompt in prompts]
            return [
                replace(r, text=p + (r.text if len(p) % 2 else ""), usage=usage) for p, r in zip(prefixes, replies, strict=True)
            ]

    folder, game = tmp_path_factory.mktemp("tables"), make_game(game_id)
    episodes = play_episodes(game, Wordy(), [(seed, 0) for seed in seeds])
    steps = [score_steps(game, episode) for episode in episodes]
    scores = [score_episode(game, episode, judged) for episode, judged in zip(episodes, steps, strict=True)]
    if usage is None or sum(usage) * game.horizon < 2**31:
        run_files.write_tables(folder, range(len(episodes)), episodes, scores, steps)
        assert run_files.read_tables(folder, game.id) == (episodes, scores, steps)
    run_files.append_episodes(folder / "log", enumerate(episodes), 1.5)
    assert run_files.read_log(folder / "log", game.id)[0] == dict(enumerate(episodes))


# ---- results of different runs are never mixed


def test_whatever_decides_a_result_is_in_the_run_hash() -> None:
    """Seen elsewhere: a cache not keyed by the model reports A's outputs as B's."""
    player = talker(Talker())
    other = replace(player, identity={**player.identity, "version": 2})
    suites = [LAKE, replace(LAKE, episodes=13), replace(LAKE, split="validation"), replace(LAKE, name="other")]
    configs = [run_config(player, suite, SLIPPERY) for suite in suites]
    configs += [run_config(other, LAKE, SLIPPERY), run_config(player, LAKE, f"{SLIPPERY}:grid"), run_config(player, LAKE, SHORT)]
    configs += [configs[0] | {"harness": 0}, configs[0] | {"task_hash": "0"}]
    assert len({run_hash(config) for config in configs}) == len(configs)
    assert run_hash(dict(reversed(configs[0].items()))) == run_hash(configs[0])


def test_two_players_of_one_name_do_not_share_a_folder(tmp_path: Path) -> None:
    first = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    second = run_task(replace(talker(Talker()), identity={"kind": "test", "player": "other"}), LAKE, SLIPPERY, tmp_path)
    assert first.folder != second.folder
    assert len(find_results(tmp_path)) == 2


def test_another_run_in_the_folder_of_a_run_is_refused(tmp_path: Path) -> None:
    mine = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    other = run_task(talker(Talker()), replace(LAKE, name="other"), SLIPPERY, tmp_path)
    shutil.rmtree(mine.folder)
    shutil.copytree(other.folder, mine.folder)
    with pytest.raises(UserError, match="holds another run than its name says: move it away") as caught:
        run_task(talker(Silent()), LAKE, SLIPPERY, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(FINAL - {"timing.json"}))
@pytest.mark.parametrize("damage", ["empty", "half", "missing"])
def test_a_damaged_file_is_one_line_and_no_traceback(name: str, damage: str, tmp_path: Path) -> None:
    result = run_task(talker(Talker()), LAKE, SLIPPERY, tmp_path)
    file = result.folder / name
    whole = file.read_bytes()
    file.unlink()
    if damage != "missing":
        file.write_bytes(whole[: len(whole) // 2] if damage == "half" else b"")
    with pytest.raises(UserError, match=r"no readable run in .*expected the files that `msgrpo eval` writes") as caught:
        load_result(result.folder)
    assert "\n" not in str(caught.value)


def test_an_output_folder_that_cannot_be_written_to_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none")):
        with pytest.raises(UserError, match=r"cannot write to .*name another output folder"):
            evaluate("random", LAKE, folder)


# ---- who plays what


def test_optimal_plays_only_the_solved_games_and_the_planner_only_the_others(tmp_path: Path) -> None:
    assert [result.task for result in evaluate("optimal", replace(MIXED, episodes=1), tmp_path)] == [SLIPPERY]
    assert [result.task for result in evaluate("planner", replace(MIXED, episodes=1), tmp_path)] == list(MIXED.tasks[1:])
    with pytest.raises(UserError, match="'optimal' can play no task of the suite 'snakes': take another player or suite"):
        evaluate("optimal", Suite(name="snakes", tasks=(SHORT,), episodes=1), tmp_path)


@pytest.mark.parametrize("name", ["optimall", "pockett", "random_safe", "planer"])
def test_a_misspelt_player_is_refused_before_anyone_plays(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"unknown player '{name}': did you mean '"):
        evaluate(["random", name], LAKE, tmp_path / "out")
    assert not (tmp_path / "out").exists()
