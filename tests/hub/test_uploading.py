"""A push is one commit, also after failures, and sends no secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.hub.uploading import Files, Pushed, Target, check_files, files_in, upload
from tests.hub_server.app import COMMIT
from tests.hub_server.client import Finished, create, put
from tests.hub_server.lanes import Loopback

pytestmark = pytest.mark.lowest

SMALL = {
    "README.md": b"---\nlicense: mit\n---\n# A card\n",
    "config.json": b"{}",
    "data/a.txt": b"a",
    "weights.safetensors": bytes(9),
}


def push(files: dict[str, bytes], target: Target, *, as_folder: bool = True, **options: Any) -> Pushed:
    """In the client's process: pushes files from a folder, or as the contents that a function makes."""
    for name, content in files.items():
        path = Path("folder", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return upload(Path("folder") if as_folder else lambda *_: files, target, message="A push", **options)


def said(finished: Finished) -> str:
    assert finished.error == "UserError", finished.err
    assert "\n" not in finished.message
    return finished.message


def test_a_folder_becomes_one_commit_and_again_none_and_only_changes_are_sent(loopback: Loopback) -> None:
    repo = loopback.repository()
    pushed, again = (loopback.owner.call(push, SMALL, Target(repo_id=repo, private=True)) for _ in "12")
    assert (loopback.files(repo), loopback.commits(repo)) == (SMALL, ["A push", "initial commit"])
    assert (pushed.changed, pushed.private) == (tuple(sorted(SMALL)), True)
    assert (again.changed, again.commit) == ((), pushed.commit)
    loopback.world.requests.clear()
    assert loopback.owner.call(push, SMALL | {"data/a.txt": b"b"}, Target(repo_id=repo)).changed == ("data/a.txt",)
    assert not loopback.requests("PUT ")


def test_owned_files_that_the_push_does_not_have_are_removed_and_others_stay(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.owner.call(put, repo, {"data/old.txt": b"", "data.txt": b"", "mine.txt": b"", "replay.svg": b""})
    loopback.owner.call(push, SMALL, Target(repo_id=repo), replaces=("replay.svg",))
    assert set(loopback.files(repo)) == {*SMALL, "data.txt", "mine.txt"}
    assert len(loopback.commits(repo)) == 3


@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 0, "truncate": 0}], ids=["refused", "lost answer"])
def test_a_push_that_failed_at_the_commit_is_repeated_by_the_same_call(loopback: Loopback, fault: dict[str, int]) -> None:
    repo = loopback.repository()
    loopback.fail(COMMIT, **fault)
    assert "run the same command again" in said(loopback.owner.attempt(push, SMALL, Target(repo_id=repo)))
    loopback.owner.call(push, SMALL, Target(repo_id=repo))
    assert (loopback.files(repo), loopback.commits(repo)) == (SMALL, ["A push", "initial commit"])


def test_after_a_race_the_push_commits_onto_the_new_head_and_after_two_it_is_refused(loopback: Loopback) -> None:
    repo = loopback.repository()
    loopback.overtake(repo, {})
    loopback.owner.call(push, SMALL, Target(repo_id=repo))
    assert loopback.commits(repo) == ["A push", "Another's commit", "initial commit"]
    assert SMALL.items() <= loopback.files(repo).items()
    loopback.overtake(repo, {}, times=2)
    assert "another change came first" in said(loopback.owner.attempt(push, {"new.txt": b""}, Target(repo_id=repo)))
    assert "new.txt" not in loopback.files(repo)


def test_a_pull_request_by_a_stranger_and_a_branch_leave_main_alone(loopback: Loopback) -> None:
    repo, main = loopback.repository(), {"a.txt": b"1"}
    loopback.owner.call(create, repo, private=False)
    loopback.owner.call(put, repo, main)
    asked = loopback.stranger.call(push, SMALL, Target(repo_id=repo, create_pr=True))
    assert asked.pull_request.endswith("/discussions/1")
    assert asked.changed == tuple(sorted(SMALL))
    loopback.owner.call(push, SMALL, Target(repo_id=repo, revision="exp/1"))
    assert loopback.files(repo, revision="refs/pr/1") == loopback.files(repo, revision="exp/1") == main | SMALL
    assert loopback.files(repo) == main


@pytest.mark.parametrize(("kind", "private"), [("model", True), ("dataset", False)])
def test_a_new_repository_has_the_requested_visibility_and_an_old_one_must_have_it(
    loopback: Loopback, kind: Any, private: bool
) -> None:
    repo = loopback.repository(kind)
    pushed = loopback.owner.call(push, SMALL, Target(repo_id=repo, kind=kind, private=private))
    assert loopback.stored(repo, kind).private == pushed.private == private
    refused = loopback.owner.attempt(push, {"new.txt": b""}, Target(repo_id=repo, kind=kind, private=not private))
    assert f"not {'public' if private else 'private'} as requested" in said(refused)
    assert loopback.files(repo, kind) == SMALL


def test_each_refusal_is_one_line_that_says_what_to_do(loopback: Loopback) -> None:
    repo, bobs = loopback.repository(), "bob/lake"
    loopback.stranger.call(create, bobs, private=True)
    cases = [
        (loopback.nobody, repo, "no token for the Hub was found: run `hf auth login`"),
        (loopback.client("hf_wrong"), repo, "the token is not accepted"),
        (loopback.reader, repo, "the token may not do this"),
        (loopback.owner, bobs, "the token may not do this"),
        (loopback.client(HF_HUB_OFFLINE="1"), repo, "HF_HUB_OFFLINE is set"),
        (loopback.client(HF_ENDPOINT="http://127.0.0.1:9"), repo, "the Hub cannot be reached"),
    ]
    for client, where, words in cases:
        assert words in said(client.attempt(push, SMALL, Target(repo_id=where)))
    assert ("model", repo) not in loopback.hub.repositories
    bad = SMALL | {"README.md": b"---\nlicense: nope\n---\n"}
    assert "the Hub refuses the card" in said(loopback.owner.attempt(push, bad, Target(repo_id=repo)))


TOKEN = b"hf_" + b"a1B2" * 8


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", b'{"path": "/home/ada/x"}', "a path of this machine (/home/a"),
        ("a.md", b"see C:\\Users\\ada", "a path of this machine"),
        ("a.toml", b'model = "~/models/x"', "a path of this machine"),
        ("a.html", b"<a href='file:///anywhere'>", "a path of this machine"),
        ("a.jinja", f"{Path.cwd()}/x".encode(), "a path of this machine"),
        ("a.json", b'{"reply": "see\\n/home/ada/x"}', "a path of this machine"),
        ("a.txt", TOKEN, "a token"),
        ("a.parquet", b"\0\1" + TOKEN + b"\0", "a token"),
        ("a.safetensors", b"\0my-secret\0", "a token"),
        ("adapter_model.bin", b"", "can run code"),
        (".env", b"", "is not pushed"),
        ("a\nb.txt", b"", "is not pushed"),
    ],
)
def test_files_that_must_not_leave_the_machine_are_refused(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    sources: tuple[Files, ...] = (files_in(tmp_path), {name: content})
    for files in sources:
        check_files({"a.md": b"https://example.org/home/ada <g></tmp/> a/home/b hf_short", "tokenizer.json": b"~/.x"})  # harmless
        with pytest.raises(UserError) as refusal:
            check_files(files, "my-secret")
        assert words in str(refusal.value)
        assert "a1B2a1B2" not in str(refusal.value)


def test_a_refused_file_creates_neither_a_repository_nor_a_branch(loopback: Loopback) -> None:
    repo, files = loopback.repository(), {"a.txt": TOKEN}
    assert "contains a token" in said(loopback.owner.attempt(push, files, Target(repo_id=repo)))
    assert not loopback.hub.repositories
    loopback.owner.call(create, repo)
    target = Target(repo_id=repo, revision="exp/1")
    assert "contains a token" in said(loopback.owner.attempt(push, files, target, as_folder=False))
    assert set(loopback.refs(repo)) == {"refs/heads/main"}
