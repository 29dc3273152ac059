"""Every flag of every command refuses bad values and odd names: one line, exit status 2, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.fields_of_flags import DIGITS, LONG, bad_flags
from tests.cli.suites import FIRM, Run, write_suite

LAKE = FIRM

BASE = {
    "play": ["play", LAKE, "--player", "pocket"],
    "eval": ["eval", "pocket", "--suite", "lake.toml", "--estimate"],
    "train": ["train", "--output-dir", "out"],
}
"""Commands that would be done, were it not for one more flag."""

FLAGS = {f"{command}, {what}": (command, flag, value) for command in BASE for what, flag, value in bad_flags(command)}

FILES = {
    "binary": b"\0\1",
    "brackets": b"x = " + b"[" * 99_999,
    "digits": b"seed = " + b"9" * 5000,
    "latin": b'game = "\xff"',
    "float16": b'dtype = "float16"',
    "seed": b"seed = 18446744073709551616",
    "date": b"seed = 1979-05-27",
    "list": b'model = ["pocket"]',
    "boolean": b"seed = true",
    "nan": b"beta = nan",
    "infinity": b"learning_rate = inf",
    "switches": b"chat_template_kwargs = 3",
    "code": b'sampler = "os:getcwd"',
    "escape": b'"\\u001b[2J" = 3',
    "whole": b"groups = 3.0",
    "model": b'model = "a\\u0000b"',
    "table": b"[train]\nseed = 1",
    "million": b'episodes = 99999999999\n[tasks]\n"x" = "x"',
    "split": b'episodes = 3\nsplit = []\n[tasks]\n"x" = "x"',
}
"""Name of a TOML file → its content."""

OF_SUITES = ("million", "split")

WORDS: dict[str, list[str]] = {
    "*": ["", "trian", "train ", "TRAIN", "a\nb", "\x1b[2J", LONG, "--hlep", "-x"],
    "games *": [
        "x",
        "",
        LONG,
        "a\nb",
        "\x1b[31m",
        f"{LAKE}:",
        f"{LAKE}:compas",
        f"{LAKE}:{LONG}",
        LAKE.lower(),
        "--json=",
        "--suite",
    ],
    "play *": ["", LONG, "--player", "--seed"],
    f"play {LAKE} --player *": [
        *("", "Random", "a\nb", LONG, f"{LONG}/{LONG}", "pocket@abc", "pocket@", "empty@v", "empty", "file", "pocket+empty"),
        *("+pocket", "a/b/c", "dqn:", "dqn:empty", f"dqn:{LONG}", "dqn:file", "endpoint:", "endpoint:ftp://h#m", "provider:"),
        *("endpoint:http://u:p@/v1#m", "endpoint:http://h:99999/v1#m", "provider:x/"),
    ],
    f"play {LAKE} --prompt-format *": ["jsn", LONG, "os:", ":x", "math:pi", "no_such_module:x"],
    f"play {LAKE} --chat-template-kwargs *": ["", "{", "[1]", "[" * 99_999, '{"messages": 1}', '{"a": 1e400}'],
    f"play {LAKE} --extra-body *": ["", "{", "[1]", "[" * 99_999, '{"model": "x"}', '{"a": 1e400}', '{"a": "\\ud800"}'],
    f"play {LAKE} --player pocket --chat-template *": ["none", "empty", LONG],
    f"play {LAKE} --player provider:x/y --mode *": ["score"],
    f"play {LAKE} --use-generation-config --top-k *": ["3"],
    "eval *": ["", "x/y/z", "pocket@abc", "--estimate", LONG],
    "eval random --suite *": [
        *(
            "",
            "quik",
            LONG,
            f"{LONG}.toml",
            "empty",
            "a\nb",
            "../quick",
            "none.toml",
            "binary.toml",
            "brackets.toml",
            "digits.toml",
        ),
        *("million.toml", "split.toml", "table.toml", "latin.toml"),
    ],
    "eval random --suite lake.toml --output-dir *": ["", "file", "file/x", LONG, "/proc/x"],
    "eval random --suite lake.toml *": ["pokcet", "--repeats", "--estimat"],
    "eval random --suite lake.toml --price-in *": ["1"],
    "compare *": ["", "empty", "--methods", LONG],
    "compare empty *": ["", "empty", "file", LONG, "a\nb", "--json"],
    "verify *": ["", "none", "file", "empty", LONG, "a\nb", "--json"],
    "report *": ["", "none", "file", "empty", LONG, "a\nb", "--json"],
    "report empty --output *": ["", "empty", LONG],
    "leaderboard *": ["", "empty", "file", LONG, "a/b/c", "a\nb", "--json"],
    "leaderboard empty *": ["--task", "--task=", "--revision=", "--jsn", "empty"],
    "export *": ["", "empty", LONG],
    "export empty *": ["", "out", LONG],
    "export * out": ["", "none", "file", LONG],
    "space *": ["x", "--device", "--device=tpu", "--device=", "--port"],
    "push *": ["", "adaptor", "adapter", "base", "--private", LONG],
    "push adapter *": ["", "empty", LONG],
    "push adapter empty a/b --dry-run *": ["", "file", LONG],
    "push base a/b *": ["--message=", "--hardware=x", "--base=x/y", "extra"],
    "push space a/b *": ["--rollouts=x/y", "--message=x", "--adapter="],
    "train *": ["", "--output-dir", "--output-dir=", "--output-dir=file", "--output-dir=file/x", f"--output-dir={LONG}"],
    "train --output-dir out --preset *": ["", "quickstrat", LONG, "a\nb"],
    "train --output-dir out --config *": [
        "",
        "empty",
        *(f"{name}.toml" for name in ("none", *FILES) if name not in OF_SUITES),
        LONG,
    ],
    "train --output-dir out --model *": [
        *(
            "",
            LONG,
            "pocket@abc",
            "pocket@",
            "empty",
            "empty@v",
            "file",
            "a\nb",
            "+",
            "@",
            "-",
            "a/b/c",
            "x" * 97,
            "pocket+empty",
        ),
    ],
    "train --output-dir out --init-adapter *": ["empty", LONG, "pocket@abc"],
    "train --output-dir out --lora-targets *": ["", "nope", ","],
    "train --output-dir out --chat-template *": ["none", "empty", LONG],
    "train --output-dir out --game *": [
        *("", ",", LONG, f"{LAKE}=0", f"{LAKE}=½", f"{LAKE},{LAKE}", f"{LAKE}=2=2", f"{LAKE}={DIGITS}", f"{LAKE}={DIGITS * 20}"),
    ],
    "train --output-dir out *": [
        *("--sampler=math:pi", "--credit=math:pi", "--sampler=no_module:x", "--base=x/y", "--private", "--push-to-hub=x"),
        *("extra", "--selected-per-group=33", "--max-new-tokens=900000", "--eval-episodes=0", "--seeds"),
        "--checkpoint-every=5",
    ],
    "train --output-dir out --seeds *": [
        *("", ",", "-", "a", "0,", "1-", "-1", "3-1", "0-1000", "0,0", "0-3,2", "1.5", "0x1", LONG, DIGITS, f"0-{DIGITS}", "0–4"),
    ],
    "train --output-dir out --seeds 0-1 *": ["--seed=1", "--push-to-hub=a/b", "--private", "--base=a/b", "extra"],
    "train --seeds 0-1 *": ["", "--output-dir", "--output-dir=", "--output-dir=file", f"--output-dir={LONG}"],
    "curves *": ["", "none", "file", "empty", LONG, "a\nb", "--json", "--x=updates"],
    "curves empty *": ["--x=steps", "--x=", "--output=", "--output=a.pdf", "--output=none/a.png", "--output=empty", "none"],
}
"""Command → what stands for its * in turn."""


@pytest.fixture(scope="module")
def corner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which nothing may change."""
    folder = tmp_path_factory.mktemp("corner")
    (folder / "empty").mkdir()
    (folder / "file").write_text("not a folder")
    write_suite(folder / "lake.toml", 3, LAKE)
    for name, content in FILES.items():
        (folder / f"{name}.toml").write_bytes(content)
    return folder


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, corner: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(corner)


def refused(run: Run, *arguments: str) -> str:
    """The line of a command that must refuse its arguments and must not change the folder."""
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    ended = run(*arguments)
    assert (ended.code, ended.out) == (2, ""), ended.err
    [line] = ended.err.splitlines()
    assert line.startswith("error: ")
    assert line.isprintable()
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before
    return line


@pytest.mark.parametrize(("command", "flag", "value"), FLAGS.values(), ids=FLAGS)
def test_a_bad_value_of_a_flag_is_one_line_that_names_it_and_writes_nothing(
    command: str, flag: str, value: str, run: Run
) -> None:
    line = refused(run, *BASE[command], f"{flag}={value}")
    assert flag.removeprefix("--") in line.replace("_", "-").replace("prompt format", "prompt-format")
    assert len(line) < 700


@pytest.mark.parametrize("command", WORDS)
def test_odd_words_are_one_line_and_write_nothing(command: str, run: Run) -> None:
    for word in WORDS[command]:
        refused(run, *(word if part == "*" else part for part in command.split()))


def test_there_are_at_least_300_bad_inputs() -> None:
    assert len(FLAGS) + sum(map(len, WORDS.values())) >= 300
