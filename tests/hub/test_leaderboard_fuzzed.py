"""Changing bytes or values of a run neither crashes the leaderboard nor passes its checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.untrusted import checked_run
from tests.examples import examples
from tests.hub.leaderboards import TASK, one_run


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_byte_of_a_run_crashes_the_leaderboard(
    played: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever is in the files: the run is the same run, or it is refused in words."""
    files = one_run(played)
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.mktemp("fuzz") / Path(name).parent.name
    folder.mkdir()
    for path, original in files.items():
        (folder / Path(path).name).write_bytes(content if path == name else original)
    [run] = {path.parent for path in (played / "greedy").rglob("config.lock.json") if TASK in path.parts}
    try:
        changed = checked_run(folder)
    except UserError:
        return
    honest = checked_run(run)
    assert (changed.config, changed.episodes, changed.scores) == (honest.config, honest.episodes, honest.scores)


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=20) | st.sampled_from(["Left", "ok", "unreadable", "<action>Up</action>"]),
}


ONLY_SAID = {"error", "reply", "finish", "prompt_tokens", "reply_tokens", "prompt_ids", "token_ids", "log_probs", "entropies"}
"""Columns that only the player can know: they may be others as long as they still say the same actions."""


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a column's type, or None."""
    if pa.types.is_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=3)
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    return st.none() | VALUES[kind]


@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_value_of_a_run_crashes_the_leaderboard_or_passes(
    played: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """In tables that are sound as tables: some values of a column are others, or none."""
    files = one_run(played)
    name = data.draw(st.sampled_from(sorted(path for path in files if path.endswith(".parquet"))))
    table = pq.read_table(pa.BufferReader(files[name]))
    column = data.draw(st.sampled_from(table.column_names))
    kind, values = table.schema.field(column).type, table[column].to_pylist()
    for _ in range(data.draw(st.integers(1, 3))):
        values[data.draw(st.integers(0, len(values) - 1))] = data.draw(values_of(kind))
    changed = table.set_column(table.column_names.index(column), column, pa.array(values, kind))
    folder = tmp_path_factory.mktemp("fuzz") / Path(name).parent.name
    folder.mkdir()
    for path, original in files.items():
        (folder / Path(path).name).write_bytes(original)
    pq.write_table(changed, folder / Path(name).name)
    try:
        checked_run(folder)
    except UserError:
        assert not changed.equals(table)
        return
    if column not in ONLY_SAID and not changed.equals(table):
        assert pa.types.is_floating(kind)  # a float may differ by rounding
        assert values == pytest.approx(table[column].to_pylist(), abs=1e-9)
