"""A complete identity says all that decides the replies of its kind of player, and belongs to one name."""

from __future__ import annotations

from typing import Any

import pytest

from msgrpo_hub.players.registry import SCRIPTED, identify, identity_problems
from msgrpo_hub.players.settings import PlayerSettings
from tests.identities import ADAPTER, COMMIT, MODEL, served

SERVER = "endpoint:http://127.0.0.1:9/v1#m"
COMPLETE: dict[str, dict[str, Any]] = {
    "random": {"kind": "scripted", "player": "random", "version": 1},
    "dqn:weights": {"kind": "dqn", "weights": "0" * 64},
    "moth": {"kind": "entry point", "player": "moth", "package": "lamp", "version": "1.2"},
    SERVER: served(SERVER),
    "org/model": MODEL,
    "me/adapter": ADAPTER,
}


@pytest.mark.lowest
def test_identities_made_here_are_complete_and_fit_their_names() -> None:
    for name, mode in [*((name, "generate") for name in (*SCRIPTED, SERVER, "pocket")), ("pocket", "score")]:
        player = identify(name, PlayerSettings(mode=mode))  # type: ignore[arg-type]
        assert identity_problems(player.name, player.identity) == [], (name, mode)


@pytest.mark.parametrize("name", COMPLETE)
def test_an_identity_without_any_one_of_its_fields_is_incomplete(name: str) -> None:
    identity = COMPLETE[name]
    assert identity_problems(name, identity) == []
    for field in identity:
        for changed in ({**identity, field: None}, {**identity, field: ""}, {k: v for k, v in identity.items() if k != field}):
            assert identity_problems(name, changed), (field, changed)


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("org/model", MODEL),
        (f"org/model@{COMMIT}", MODEL),
        ("org/model@v1", MODEL),
        ("me/adapter", ADAPTER),
        ("me/adapter@main", ADAPTER),
        (f"org/model@{COMMIT}+me/adapter@{'f' * 40}", ADAPTER),
        ("folder:base", MODEL | {"base": "folder:base"}),
        ("pocket+folder:a+b", ADAPTER | {"base": "pocket", "adapter": "folder:a+b"}),
    ],
)
def test_a_model_may_be_called_by_its_sources_with_or_without_revisions(name: str, identity: dict[str, Any]) -> None:
    assert identity_problems(name, identity) == []


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("org/better", MODEL),
        ("org/model+me/adapter", MODEL),
        ("org/model", ADAPTER),
        ("org/better+me/adapter", ADAPTER),
        (f"org/model@{'e' * 40}", MODEL),
        (f"me/adapter@{'e' * 40}", ADAPTER),
        ("optimal", COMPLETE["random"]),
        ("random", {"kind": "scripted", "player": "random", "version": 2}),
        ("random", COMPLETE["dqn:weights"]),
        ("endpoint:http://127.0.0.1:9/v1#better", COMPLETE[SERVER]),
        ("lamp", COMPLETE["moth"]),
        ("org/model", MODEL | {"mode": "score"}),
        ("org/model", MODEL | {"temperature": -1.0}),
        ("org/model", MODEL | {"max_new_tokens": True}),
        ("org/model", MODEL | {"base_commit": "main"}),
    ],
)
def test_a_name_that_disagrees_with_its_identity_is_found(name: str, identity: dict[str, Any]) -> None:
    assert len(identity_problems(name, identity)) == 1
