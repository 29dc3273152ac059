"""Files that the first build wrote are read, verified and published: they lie in `first_build/`, made by its own code."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import find_results
from msgrpo_hub.evaluation.verify_rollouts import verify_folder
from msgrpo_hub.games import make_game
from msgrpo_hub.hub.rollouts import stage_rollouts
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.storage.schema import FIRST_ROLLOUTS, FIRST_RUNS, FIRST_TESTS, LATEST, VERSIONS, schema
from msgrpo_hub.storage.shards import load_shards, read_shard, read_stored, read_table, shards, write_table

FIRST = Path(__file__).parent / "first_build"
LAKE = "FrozenLake-NotSlippery-v1"
RESULTS = Path(__file__).parent / "first_build" / "results" / "random" / "v1" / "FrozenLake-Slippery-v1"


def test_the_fixtures_are_what_the_first_build_wrote() -> None:
    for place in ("run", "dataset"):
        [pair] = shards(FIRST / place)
        for path, config in zip(pair, ("default", "steps"), strict=True):
            assert pq.read_schema(path).metadata[b"format"] == b"msgrpo-rollouts-v1"
            assert read_stored(path, config)[0] is FIRST_ROLLOUTS
    assert read_stored(FIRST / "run" / "test_episodes.parquet", "default")[0] is FIRST_TESTS
    [folder] = RESULTS.iterdir()
    for name, config in (("episodes", "default"), ("steps", "steps")):
        assert read_stored(folder / f"{name}.parquet", config)[0] is FIRST_RUNS


@pytest.mark.parametrize("place", ["run", "dataset"])
def test_rollouts_of_the_first_build_are_read_as_what_was_played(place: str) -> None:
    """The same random play today; each step had its episode's advantage."""
    [rollouts] = load_shards(FIRST / place)
    [group] = play_groups(make_game(LAKE), ScriptedPolicy(choose_random), [1], 2)
    assert tuple(rollout.episode for rollout in rollouts) == group.episodes
    assert [(rollout.update, rollout.advantage, rollout.selected) for rollout in rollouts] == [(1, 1.0, False), (1, -1.0, True)]
    assert all(rollout.step_advantages == (rollout.advantage,) * len(rollout.episode.steps) for rollout in rollouts)
    assert {rollout.prompt_format for rollout in rollouts} == {"think-action"}


@pytest.mark.parametrize("place", ["run", "dataset"])
def test_rollouts_of_the_first_build_pass_verification_and_a_changed_advantage_does_not(place: str, tmp_path: Path) -> None:
    [row] = verify_folder(FIRST / place)
    assert (row["player"], row["episodes"], row["problems"]) == ("training", 2, [])
    [pair] = shards(FIRST / place)
    for path, config in zip(pair, ("default", "steps"), strict=True):
        table = pq.ParquetFile(path).read()
        column = table.schema.get_field_index("advantage")
        changed = table.set_column(column, table.schema.field(column), pa.array([9.0, *table["advantage"].to_pylist()[1:]]))
        (tmp_path / config).mkdir()
        pq.write_table(changed if config == "steps" else table, tmp_path / config / path.name)
    assert "turn 1: advantage does not follow from the actions" in str(verify_folder(tmp_path))


def test_a_run_of_the_first_build_is_published_in_the_format_of_today(tmp_path: Path) -> None:
    card = stage_rollouts(FIRST / "run", "ada/lake", tmp_path)
    assert card.statistics.episodes == 2
    [pair] = shards(tmp_path)
    for path, config in zip(pair, ("default", "steps"), strict=True):
        stored = pq.read_schema(path)
        assert (stored, stored.metadata[b"format"]) == (schema(config), b"msgrpo-episodes-v2")
    assert list(load_shards(tmp_path)) == list(load_shards(FIRST / "run"))
    published = [[table.to_pylist() for table in read_shard(*shards(place)[0])] for place in (FIRST / "dataset", tmp_path)]
    for row in (row for tables in published for table in tables for row in table):
        row.pop("episode"), row.pop("run", None)  # hashes of the configuration, which has other fields today
    assert published[0] == published[1]  # the first build's columns, upgraded, are those of today
    assert verify_folder(tmp_path)[0]["problems"] == []


def test_an_evaluation_of_the_first_build_is_published_in_the_format_of_today(tmp_path: Path) -> None:
    stage_rollouts(RESULTS, "ada/lake", tmp_path)
    [rollouts] = load_shards(tmp_path)
    [result] = find_results(RESULTS)
    assert [rollout.episode for rollout in rollouts] == result.episodes
    assert [rollout.index for rollout in rollouts] == list(range(200))
    assert {(rollout.advantage, rollout.step_advantages, rollout.selected) for rollout in rollouts} == {(None, None, None)}


def test_test_episodes_of_the_first_build_are_read_with_the_temperature_in_place_of_the_decoding() -> None:
    rows = read_table(FIRST / "run" / "test_episodes.parquet", "default", {"game": LAKE, "temperature": 0.7}).to_pylist()
    assert [(row["player"], row["temperature"]) for row in rows] == [
        (player, temperature) for player in ("random", "base") for temperature in (0.7, 0.7, 0.7, 0.0, 0.0, 0.0)
    ]
    assert [row["index"] for row in rows] == [0, 1, 2] * 4
    assert all((row["game"], row["split"], row["steps"]) == (LAKE, "test", len(row["actions"])) for row in rows)


def test_two_tables_of_two_versions_are_no_shard(tmp_path: Path) -> None:
    [(heads, steps)] = shards(FIRST / "dataset")
    for config, path in (("default", heads), ("steps", steps)):
        (tmp_path / config).mkdir()
        (tmp_path / config / path.name).write_bytes(path.read_bytes())
    write_table(read_table(steps, "steps"), tmp_path / "steps" / steps.name)
    assert "its episodes are msgrpo-rollouts-v1, its steps msgrpo-episodes-v2" in str(verify_folder(tmp_path))


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: str(version.name))
def test_columns_must_be_exactly_those_of_a_version(version: object, tmp_path: Path) -> None:
    """One less, one more, another type, another order, or the name of another version: each is refused."""
    own = next(known for known in VERSIONS if known is version)
    for config, columns in own.columns.items():
        stored = pa.schema(list(columns.items()))
        fields = list(stored)
        spoiled = [
            pa.schema(fields[1:]),
            pa.schema([*fields, pa.field("more", pa.int32())]),
            pa.schema([pa.field(fields[0].name, pa.binary()), *fields[1:]]),
            pa.schema([fields[1], fields[0], *fields[2:]]),
            stored.with_metadata({"format": "msgrpo-episodes-v9"}),
        ]
        for columns_of_none in spoiled:
            pq.write_table(columns_of_none.empty_table(), tmp_path / "x.parquet")
            with pytest.raises(UserError, match="has other columns"):
                read_table(tmp_path / "x.parquet", config)
        pq.write_table(stored.empty_table(), tmp_path / "x.parquet")
        assert read_stored(tmp_path / "x.parquet", config)[0] is own
        assert read_table(tmp_path / "x.parquet", config).schema.equals(LATEST_SCHEMAS[config])


LATEST_SCHEMAS = {config: pa.schema(list(columns.items())) for config, columns in LATEST.columns.items()}
