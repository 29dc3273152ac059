"""What a run keeps of its episodes, and its hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation import evaluate
from msgrpo_hub.evaluation.results import run_hash, run_tables
from msgrpo_hub.evaluation.runner import run_config, run_task
from msgrpo_hub.evaluation.scores import score_episode, score_steps
from msgrpo_hub.games import GAMES, make_game
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.players.settings import PlayerSettings
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage import run_files
from tests.evaluation.played import LAKE, SHORT, SLIPPERY, Talker, talker

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
@settings(max_examples=25)
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
        config = {"identity": {}, "split": "test", "player": "wordy", "prompt_format": "think-action"}
        run_files.write_tables(folder, run_tables(config, range(len(episodes)), episodes, scores, steps))
        assert run_files.read_tables(folder) == (episodes, scores, steps)
    run_files.append_episodes(folder / "log", enumerate(episodes), 1.5)
    assert run_files.read_log(folder / "log", game.id).episodes == dict(enumerate(episodes))


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
