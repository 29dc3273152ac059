"""The card of a dataset of results, and the commands that show and renew it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from msgrpo_hub.hub.card_rules import split_card
from tests.hub.conftest import msgrpo, run_command
from tests.hub.pushed_results import folder_as_files, kept, load, push
from tests.hub_server.cards import check_card as check_as_the_hub_does
from tests.hub_server.client import LOADS_DATASETS
from tests.hub_server.lanes import Loopback
from tests.hub_server.operations import put

warm = LOADS_DATASETS

# ---- the command and the card


def test_a_dry_run_writes_exactly_what_a_push_sends(loopback: Loopback, played: Path, tmp_path: Path) -> None:
    repo = loopback.repository("dataset")
    for number, player in enumerate(("random", "greedy")):  # into a new dataset, and into one that is there
        dry = tmp_path / str(number)
        done = loopback.owner.attempt(msgrpo, "push", "results", played / player, repo, "--dry-run", dry, "--json")
        assert done.code == 0, done.err
        pushed = loopback.owner.call(push, played / player, repo)
        assert json.loads(done.out)["files"] == sorted(folder_as_files(dry)) == list(pushed.changed)
        assert folder_as_files(dry).items() <= loopback.files(repo, "dataset").items()


def test_the_command_says_who_will_see_it_and_what_comes_next(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    done = loopback.owner.attempt(msgrpo, "push", "results", played / "random", repo, "--private", "--message", "Mine")
    assert (done.code, done.out) == (0, f"{loopback.endpoint}/datasets/{repo}\n"), done.err
    assert done.err.startswith(f"pushing to {repo} (private)\n")
    assert done.err.endswith(f"Next: msgrpo leaderboard {repo}\n")
    assert loopback.commits(repo, "dataset")[0] == "Mine"


def run_code(block: str) -> None:
    """In the client's process: runs a code block of a card."""
    exec(compile(block, "card", "exec"), {"__name__": "__main__"})


def test_the_card_passes_the_rules_shows_the_table_and_its_code_runs(loopback: Loopback, played: Path) -> None:
    repo = loopback.repository("dataset")
    for player in ("random", "greedy"):
        loopback.owner.call(push, played / player, repo, private=False)
    card = loopback.files(repo, "dataset")["README.md"].decode()
    assert check_as_the_hub_does("dataset", card) == ([], [])
    metadata, text = split_card(card)
    splits = [{"split": "runs", "path": "leaderboard.parquet"}]
    assert metadata["configs"] == [{"config_name": "default", "data_files": splits, "default": True}]
    title = r"\*\*FrozenLake-NotSlippery-v1\*\*, 30 test episodes on \d+ boards; silent 0.00, random 0.0\d, optimal 1.00"
    assert re.search(rf"{title}\n\n\| player \|", text)
    picture, *links = re.findall(r"\]\((\S+)\)", text)
    assert len(links) == 4
    files = loopback.files(repo, "dataset")
    assert picture in files
    for link in links:
        assert f"{link.partition(f'datasets/{repo}/tree/main/')[2]}/results.json" in files
    assert not re.search(r"\bNone\b|\{\{|\}\}|\{%|\n\n\n| $", text, re.MULTILINE)
    assert "msgrpo eval PLAYER --suite mine --output-dir runs/mine" not in text  # a name of a suite that only its owner has
    assert "msgrpo eval PLAYER --suite standard --output-dir runs/mine\n" in text
    assert "rank: the places that paired tests leave open" in text
    [block] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    ran = loopback.nobody.attempt(run_code, block)
    assert (ran.code, ran.out.split()[0], ran.out.split()[-1]) == (0, "greedy", "30"), ran.err


def test_the_commands_of_the_card_add_a_player_and_update_the_page(loopback: Loopback, played: Path, tmp_path: Path) -> None:
    repo = loopback.repository("dataset")
    loopback.owner.call(push, played / "random", repo)
    loopback.owner.call(put, repo, {f"results/{name}": content for name, content in kept(played / "greedy").items()}, "dataset")
    card = loopback.files(repo, "dataset")["README.md"].decode()
    commands = re.findall(r"```bash\n(.*?)```", card, re.DOTALL)[-1]
    for command in commands.splitlines():
        done = loopback.owner.attempt(run_command, command, tmp_path)
        assert done.code == 0, done.err
    assert {run["player"] for run in loopback.owner.call(load, repo)} == {"random", "greedy"}
