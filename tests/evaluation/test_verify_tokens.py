"""The tokens of a run's replies must fit the token limit; where no tokenizer is at hand, verify says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.downloads.names import content_hash, pocket_path
from msgrpo_hub.episode import Completion
from msgrpo_hub.evaluation.results import Result
from msgrpo_hub.evaluation.runner import run_task
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.token_check import local_tokenizer, token_problems
from msgrpo_hub.evaluation.verify import verify
from msgrpo_hub.players.identity import Player
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.storage.tables import Origin
from tests.evaluation.tampering import forged, found
from tests.identities import MODEL

LAKE = "FrozenLake-NotSlippery-v1"
COMMIT = content_hash(pocket_path())
POCKET = MODEL | {"base": "pocket", "base_commit": COMMIT, "max_new_tokens": 32}


@dataclass(frozen=True)
class Counted:
    """A random player that reports as many tokens as the built-in base needs for its replies, and some more or less."""

    more: int = 0
    finish: str = "stop"

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        replies = ScriptedPolicy(choose_random).complete(prompts, rngs)
        return [self._reply(reply.text) for reply in replies]

    def _reply(self, text: str) -> Completion:
        tokenizer = local_tokenizer("pocket", COMMIT)
        assert tokenizer
        needed = len(tokenizer.tokenizer.encode(text).ids) + 1  # with the end token
        return Completion(text=text, finish=self.finish, usage=(200, needed + self.more))  # type: ignore[arg-type]


def played(policy: Counted, folder: Path) -> Result:
    """A run that claims to be one of the built-in base."""
    player = Player(name="pocket", policy=policy, identity=POCKET, folder="pocket/x", batched=True)
    return run_task(player, Suite(name="mine", tasks=(LAKE,), episodes=3), LAKE, folder)


@pytest.mark.parametrize("more", [0, 5])
def test_replies_within_the_limit_pass(more: int, tmp_path: Path) -> None:
    played(Counted(more), tmp_path)
    [row] = verify(tmp_path)
    assert row["problems"] == []
    assert [line for line in row["unchecked"] if "tokens" in line] == []


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Counted(30), "tokens and finish stop, its limit is 32"),
        (Counted(finish="length"), "tokens and finish length, its limit is 32"),
    ],
    ids=["more than the limit", "cut before the limit"],
)
def test_tokens_that_do_not_fit_the_limit_are_found(policy: Counted, words: str, tmp_path: Path) -> None:
    assert words in found(played(policy, tmp_path))


def test_a_cut_reply_may_start_with_the_marker_that_its_prompt_ends_with() -> None:
    """The marker is in the text and not among the sampled tokens, which may be stored or only counted."""
    tokenizer = local_tokenizer("pocket", COMMIT)
    assert tokenizer
    ids = tuple(tokenizer.tokenizer.encode("The goal is (3, 3).").ids)
    origin = Origin(split="test", player="pocket", run="", base="pocket", base_revision=COMMIT, max_new_tokens=len(ids))
    for text, finish, problems in (
        ("<think>\nThe goal is (3, 3).", "length", 0),
        ("The goal is (3, 3).", "length", 0),
        ("<think>\nThe goal is (3, 3).", "stop", 1),
        ("<think>\nThe goal is (0, 3).", "length", 1),
    ):
        stored = Completion(text=text, finish=finish, prompt_ids=(1,), token_ids=ids, log_probs=(0.0,) * len(ids))  # type: ignore[arg-type]
        assert len(token_problems(origin, stored, None)) == problems
    counted = Completion(text="<think>\nThe goal is (3, 3).", finish="length", usage=(1, len(ids)))
    assert token_problems(origin, counted, None) == []


def test_tokens_of_a_model_that_is_not_on_this_machine_are_said_to_be_unchecked(tmp_path: Path) -> None:
    """Also of another state of the built-in base: its tokens may be others."""
    run = played(Counted(), tmp_path)
    for name, commit in (("pocket", "0" * 64), ("org/model", "0" * 40), ("folder:mine", "0" * 64)):
        run = forged(run, lambda config, n=name, c=commit: config.update(player=n, identity=POCKET | run_of(n, c)))
        [row] = verify(run.folder)
        assert row["problems"] == []
        assert f"tokens not checked: the tokenizer of {name} is not on this machine at that commit" in row["unchecked"]


def run_of(base: str, commit: str) -> dict[str, object]:
    return {"base": base, "base_commit": commit, "batch_size": 50}


def test_tokens_are_checked_without_torch_or_transformers(tmp_path: Path) -> None:
    played(Counted(30), tmp_path)
    program = (
        "import sys; from pathlib import Path; from msgrpo_hub.evaluation.verify import verify\n"
        "print('its limit is 32' in str(verify(Path(sys.argv[1]))), {'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "True set()\n"


def test_tokens_of_an_adapter_with_a_tokenizer_of_its_own_are_checked_with_that(tmp_path: Path) -> None:
    commit = "1" * 40
    own = Tokenizer.from_file(str(pocket_path() / "tokenizer.json"))
    own.add_tokens(["<brand-new>"])
    (beside := tmp_path / "hub" / "models--me--lake" / "snapshots" / commit).mkdir(parents=True)
    own.save(str(beside / "tokenizer.json"))
    program = (
        "from msgrpo_hub.episode import Completion; from msgrpo_hub.storage.tables import Origin\n"
        "from msgrpo_hub.evaluation.token_check import token_problems\n"
        f"values = {{'prompt_ids': (1,), 'token_ids': ({own.token_to_id('<brand-new>')},), 'log_probs': (0.0,)}}\n"
        "reply = Completion(text='<brand-new>', finish='stop', **values)\n"
        f"base = {{'base': 'pocket', 'base_revision': {COMMIT!r}}}\n"
        f"for adapter in ({{'adapter': 'me/lake', 'adapter_revision': {commit!r}}}, {{}}):\n"
        "    print(token_problems(Origin(split='test', player='x', run='', **base, **adapter), reply, None))"
    )
    isolated = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=isolated)
    assert done.stdout == "[]\n['its tokens do not say its reply']\n"
