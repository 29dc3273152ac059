"""Cards: accepted or refused before a push, and in it.

`ModelCard.validate` and `ModelCard.push_to_hub` of huggingface_hub 1.33 ask huggingface.co whatever HF_ENDPOINT says; so
these two are not among the tests for the lowest versions, and what must be tested should push with `HfApi`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.repocard import RepoCard

from tests.hub_server.cards import check_card
from tests.hub_server.client import ClientError
from tests.hub_server.operations import create, put

if TYPE_CHECKING:
    from tests.hub_server.lanes import Lane, Loopback

GOOD = """---
base_model: Qwen/Qwen2.5-0.5B-Instruct
base_model_relation: adapter
library_name: peft
license: apache-2.0
pipeline_tag: text-generation
tags: [reinforcement-learning]
model-index:
- name: lake
  results:
  - task: {type: reinforcement-learning}
    dataset: {type: FrozenLake-NotSlippery-v1, name: FrozenLake-NotSlippery-v1}
    metrics: [{type: mean_reward, value: 0.75}]
---
# A card
"""


def validate(content: str) -> None:
    ModelCard(content).validate()


def push(repo: str, content: str) -> None:
    ModelCard(content).push_to_hub(repo)


def load(repo: str) -> str:
    return str(RepoCard.load(repo).data.license)


def card(**metadata: str) -> str:
    return "---\n" + "\n".join(f"{key}: {value}" for key, value in metadata.items()) + "\n---\n# A card\n"


def test_a_good_card_is_pushed_after_two_checks(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(create, repo)
    loopback.forget_requests()
    loopback.owner.call(push, repo, GOOD)
    assert len(loopback.requests("POST /api/validate-yaml")) == 2
    assert loopback.files(repo)["README.md"].decode().endswith("# A card\n")
    assert loopback.owner.call(load, repo) == "apache-2.0"


def test_a_bad_card_is_refused_before_anything_is_sent(hub: Lane) -> None:
    repo, bad = hub.repository(), card(license="nope")
    hub.owner.call(create, repo)
    for attempt in ((validate, bad), (push, repo, bad)):
        with pytest.raises(ClientError, match=r'ValueError: .*"license.*" must be one of'):
            hub.owner.call(*attempt)
    assert hub.files(repo) == {}


@pytest.mark.lowest
def test_a_bad_card_among_other_files_is_refused_with_them(hub: Lane) -> None:
    repo = hub.repository()
    hub.owner.call(create, repo)
    with pytest.raises(ClientError, match=r"ValueError: Invalid metadata in README.md"):
        hub.owner.call(put, repo, {"a.txt": b"1", "README.md": card(license="nope").encode()})
    assert hub.files(repo) == {}


@pytest.mark.lowest
def test_a_card_without_front_matter_is_only_warned_about(hub: Lane) -> None:
    repo = hub.repository()
    hub.owner.call(put, repo, {"README.md": b"# A card\n"})
    assert hub.files(repo) == {"README.md": b"# A card\n"}


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        ("model", {"license": "nope"}),
        ("model", {"base_model": "/home/me/model"}),
        ("model", {"base_model": "./runs/1"}),
        ("dataset", {"tags": "[1, 2]"}),
        ("model", {"model-index": "[{name: a, results: [{dataset: {type: d, name: d}, metrics: [{type: m, value: 1}]}]}]"}),
        (
            "model",
            {"model-index": "[{name: a, results: [{task: {type: x}, dataset: {type: d, name: d}, metrics: [{type: m}]}]}]"},
        ),
        ("model", {"model-index": "[{results: []}]"}),
        ("space", {"sdk": "cobol"}),
        ("space", {"sdk": "gradio", "colorFrom": "mauve"}),
        ("model", {"tags": "[unclosed"}),
    ],
)
def test_faults_of_a_card_are_reported(kind: str, metadata: dict[str, str]) -> None:
    errors, _ = check_card(kind, card(**metadata))
    assert len(errors) == 1


def test_the_good_card_is_good_and_complete() -> None:
    assert check_card("model", GOOD) == ([], [])
