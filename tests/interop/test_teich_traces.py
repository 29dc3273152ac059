"""Our sessions are those of Pi to the loader of `datasets`, which decodes agent traces with the package teich."""

from __future__ import annotations

from pathlib import Path

import pytest

from msgrpo_hub.storage.traces import TraceSample
from tests.storage.traced import ORIGIN, of_a_model

pytest.importorskip("teich")
datasets = pytest.importorskip("datasets")


def test_the_loader_of_agent_traces_reads_our_sessions_as_those_of_pi(tmp_path: Path) -> None:
    sample = TraceSample(size=3)
    sample.add(ORIGIN, [of_a_model(member=member) for member in range(3)])
    sample.write(tmp_path)
    files = str(tmp_path / "traces" / "*.jsonl")
    rows = datasets.load_dataset("json", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert {row["harness"] for row in rows} == {"pi"}
    assert {row["session_id"] for row in rows} == {f"{ORIGIN.run}-3-5-{member}" for member in range(3)}
    for row in rows:
        assert [message["role"] for message in row["messages"]] == ["user", "assistant"] * 2
        assert row["num_user_messages"] == 2
        told = [step.completion.text for step in of_a_model().episode.steps]
        assert [message["content"] for message in row["messages"]][1::2] == [told[0], told[1].replace("\ud800", "?")]
