"""Wrong arguments of commands and of Python give one line with the given and the expected value, and nothing is overwritten."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from msgrpo_hub import evaluation, games, hub, players, training
from msgrpo_hub.agent import ScriptedPolicy
from msgrpo_hub.agent.prompt_formats import THINK_ACTION
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.paired import compare_paired
from msgrpo_hub.evaluation.suites import Suite
from msgrpo_hub.evaluation.verify import verify
from msgrpo_hub.games.environment import TextGameEnv
from msgrpo_hub.hub.adapters import stage_adapter
from msgrpo_hub.interop.episodes import start_play
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.msgrpo import group_advantages
from msgrpo_hub.players.scripted import choose_random
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.training.config import parse_games
from msgrpo_hub.training.trainer import out_of_memory
from tests.cli.suites import Run, write_suite
from tests.command import Command
from tests.files import hashes

LAKE, SNAKE, LONG, DIGITS = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1", "a" * 300, "9" * 400
SMALL = Suite(name="small", tasks=(LAKE,), episodes=1)
GAME, PLAYER = games.make_game(LAKE), ScriptedPolicy(choose_random)


CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: games.make_game(3), "game_id = 3: expected str"),
    (lambda: games.episode_seed(LAKE, "tset", 0), "unknown split 'tset': did you mean 'test'"),
    (lambda: TextGameEnv("Snake-Sol-v1"), "did you mean 'Snake-Solo-v1'"),
    (lambda: TextGameEnv(SNAKE, observation="tensors"), "unknown observation 'tensors': did you mean 'tensor'"),
    (lambda: TextGameEnv(SNAKE, render_mode="human"), "unknown render mode 'human': expected one of ansi, rgb_array"),
    (lambda: TextGameEnv(SNAKE, split="trian"), "unknown split 'trian': did you mean 'train'"),
    (lambda: start_play(GAME, THINK_ACTION, seed=-1), "seed = -1: expected at least 0"),
    (lambda: start_play(GAME, THINK_ACTION, seed="one"), "seed = 'one': expected int"),
    (lambda: start_play(GAME, THINK_ACTION, split="tests"), "did you mean 'test'"),
    (lambda: players.make_player("pocket", {}), "settings = {}: expected PlayerSettings or None"),
    (lambda: players.PlayerSettings(temperature="hot"), "temperature = 'hot': expected float"),
    (lambda: players.PlayerSettings(max_new_tokens=True), "max_new_tokens = True: expected int"),
    (lambda: play_groups(GAME, PLAYER, (1,), 0), "group_size = 0: expected at least 1"),
    (lambda: play_groups(GAME, PLAYER, ["7"], 1), "seeds = .*expected Sequence of int"),
    (lambda: play_groups(GAME, PLAYER, [-1], 1), "seeds = .*expected Sequence of at least 0"),
    (lambda: play_groups(GAME, "pocket", [1], 1), "policy = 'pocket': expected Policy"),
    (lambda: LanguageModel.from_pretrained(None), "repo_or_path = None: expected str or Path"),
    (lambda: LanguageModel.from_pretrained(Path("none")), "cannot load 'none': expected 'pocket', a folder"),
    (lambda: evaluation.evaluate([], SMALL), "no players: expected the name of at least one"),
    (lambda: evaluation.evaluate("random", None), "suite = None: expected str or Suite"),
    (lambda: Suite(name="x", tasks=(), episodes=1), "a suite of no tasks"),
    (lambda: evaluation.compare(3, 4), "first = 3: expected"),
    (lambda: compare_paired([1.0, 2.0], [1.0], seed=0), r"equal length, got shapes \(2,\) and \(1,\)"),
    (lambda: compare_paired([1.0, float("nan")], [1.0, 2.0], seed=0), "finite values"),
    (lambda: verify(Path()), "no runs under .*expected a folder that `msgrpo eval --output-dir` has filled"),
    (lambda: verify(Path("none")), "no runs under .*expected a folder that `msgrpo eval --output-dir` has filled"),
    (lambda: parse_games(f"{LAKE},{LAKE}"), "twice"),
    (lambda: parse_games(f"{LAKE}=0,{SNAKE}"), "weights from 1 to 1000"),
    (lambda: parse_games(f"{LAKE}=0.5,{SNAKE}"), "weights from 1 to 1000"),
    (lambda: parse_games(f"{LAKE},"), "unknown game"),
    (lambda: parse_games("FrozenLake-NotSliperry-v1,Snake-Solo-v1"), "did you mean"),
    (lambda: training.TrainConfig(updates="3"), "updates = '3': expected int"),
    (lambda: training.TrainConfig(seed=10**5000), "seed = a number of thousands of digits"),
    (lambda: training.TrainConfig(chat_template_kwargs=[]), "expected dict"),
    (lambda: training.train({}, "out"), "config = {}: expected TrainConfig"),
    (lambda: hub.load_rollouts("runs", split="tset"), "unknown|expected one of"),
    (lambda: hub.push_adapter("run", 3), "repo_id = 3: expected str"),
    (lambda: stage_adapter(Path("none"), "ada/lake", Path("staged"), rollouts="no/such/name"), "no/such/name"),
    (lambda: hub.read_leaderboard(3), "source = 3: expected str or Path"),
    (lambda: group_advantages([1.0, 0.0]), "expected Tensor"),
]
"""A call, and a part of its error."""

COMMANDS = [
    ("", "COMMAND; see msgrpo --help"),
    ("trian", "unknown command 'trian': did you mean 'train'"),
    ("play FrozenLake-NotSlipery-v1", f"unknown game 'FrozenLake-NotSlipery-v1': did you mean '{LAKE}'"),
    (f"play {LAKE} --player optimall", "'optimall'.*did you mean 'optimal'"),
    (f"play {SNAKE} --player optimal", "Snake-Solo-v1 has no exact optimum.* use the player 'greedy'"),
    ("eval pocket --chat-template-kwargs thinking=false", "expected a JSON object in quotes, such as"),
    ('train @ --chat-template-kwargs {"a":{}}', "a = '{}' in chat_template_kwargs: expected a text"),
    (f"play {LAKE} --player @/base --temperature -1", "temperature.*-1.*at least 0"),
    (f"play {LAKE} --player @/base --max-new-tokens 5000", r"5000.*1024 positions.*--max-new-tokens \d+\)"),
    ("eval random --suite @/wrong.toml", f"{LAKE} has hash .* expects 0000: give a changed game"),
    ("eval optimal --suite @/snakes.toml", "'optimal' can play no task of the suite"),
    ("eval dqn:@/none --suite @/lake.toml", "can play no task|no DQN in '@/none'"),
    ("verify @/empty", "no episodes under '@/empty': expected .*`msgrpo train --save-rollouts`"),
    (f"play {LAKE} --player @/none", "no model in the folder '@/none': expected config.json"),
    (f"play {LAKE} --player some/model", "cannot load 'some/model': expected 'pocket', a folder, or a"),
    (f"play {LAKE} --player @/base+@/adapter-of-another-base", "does not fit its base '@/base'.*size"),
    (f"play {LAKE} --player @/base+@/base", "'@/base' is not a LoRA adapter: expected adapter_config.json"),
    (f"play {LAKE} --player @/run/adapter+@/run/adapter", "is a LoRA adapter, not a base"),
    ("train @ --model @/run/adapter", "'@/run/adapter' is a LoRA adapter: expected a base model"),
    (f"play {LAKE} --player @/no-template", "no chat template: pass one with --chat-template FILE"),
    (f"play {LAKE} --player @/base --chat-template @/broken.jinja", "'@/broken.jinja'"),
    ("train @ --grops 3", "unknown flag '--grops': did you mean '--groups'"),
    ("train @ --credit os:getcwd", r"'os:getcwd' cannot be called with groups, returns, context \(too many positional"),
    ("train @ --sampler threading:Timer", "cannot create the sampler 'threading:Timer' .*expected a class without arguments"),
    ("train --output-dir @/locked", r"cannot use '@/locked/.lock' \(Is a directory\): name another folder"),
    ("train @ --sampler best", "unknown sampler 'best': expected one of absolute-advantage.*or module:object"),
    ("train @ --preset quickstart --config @/broken.toml", "--preset and --config are both given: expected one"),
    ("train @ --config @/unknown-field.toml", "unknown-field.toml 'gruops': did you mean 'groups'"),
    ("train @ --config @/wrong-type.toml", "groups = 'three' in @/wrong-type.toml: expected int"),
    ("train @ --config @/broken.toml", "'@/broken.toml' is not valid TOML: .*line 1"),
    ("train @ --group-size 4 --selected-per-group 5", "selected_per_group = 5 of group_size = 4: expected G' <= G"),
    ("train @ --updates 0", "updates = 0: expected at least 1"),
    ("train @ --learning-rate nan", "learning_rate = nan: expected"),
    ("train @ --device cuda", "device = 'cuda': torch finds no such device.*expected auto or cpu"),
    ("train @ --report-to wandb", "report_to = 'wandb' cannot be used.*install it or take 'none'"),
    ("train @ --learning-rate 1e30", "expected finite numbers: lower --learning-rate"),
    ("train @ --model @/nan-everywhere", "finite"),
    ("train --output-dir @/file/run", "cannot write to the output folder '@/file/run'.*name another --output-dir"),
    ("train --output-dir @/run", "'@/run' already holds a run: continue it with --resume, or name another"),
    ("train --output-dir @/run --resume --seed 7", "'@/run' holds a run with seed = 0, not 7"),
]
"""Arguments, where @ is the place with the files (or, after `train`, a new output folder), and a part of the error."""

FILES = {
    "binary": b"\0\1",
    "brackets": b"x = " + b"[" * 99_999,
    "digits": b"seed = " + b"9" * 5000,
    "nan": b"beta = nan",
    "code": b'sampler = "os:getcwd"',
    "escape": b'"\\u001b[2J" = 3',
    "table": b"[train]\nseed = 1",
}
"""Name of a TOML file → its content."""

ODD: dict[str, list[str]] = {
    "*": ["", "TRAIN", "a\nb", "\x1b[2J", LONG, "--hlep", "-x"],
    "games *": ["x", LONG, "a\nb", "\x1b[31m", f"{LAKE}:", f"{LAKE}:compas", "--json=", "--suite"],
    f"play {LAKE} --player *": [
        *("", "Random", "a\nb", LONG, "pocket@abc", "empty@v", "empty", "file", "pocket+empty", "+pocket", "a/b/c", "dqn:empty"),
        *("endpoint:", "endpoint:ftp://h#m", "endpoint:http://u:p@/v1#m", "provider:x/"),
    ],
    f"play {LAKE} --prompt-format *": ["jsn", "os:", ":x", "math:pi", "no_such_module:x"],
    f"play {LAKE} --extra-body *": ["", "{", "[" * 99_999, '{"model": "x"}', '{"a": 1e400}', '{"a": "\\ud800"}'],
    f"play {LAKE} --seed *": ["", "-1", "1.5", DIGITS],
    f"play {LAKE} --player pocket --temperature *": ["", "nan", "inf", "1e400", "0,5"],
    "eval random --suite *": ["", "quik", f"{LONG}.toml", "empty", "none.toml", "binary.toml", "brackets.toml", "table.toml"],
    "eval random --suite lake.toml *": ["pokcet", "--repeats=0", "--estimat", "--price-in=1", "--output-dir=file/x"],
    "compare *": ["", "empty", "--methods"],
    "verify *": ["", "none", "file", "empty", LONG],
    "report empty *": ["--output=", "--output=empty", "--json"],
    "leaderboard *": ["", "empty", "file", "a/b/c", "a\nb"],
    "space *": ["x", "--device=tpu", "--device=cuda", "--port"],
    "push *": ["", "adaptor", "adapter", "--private", LONG],
    "push adapter empty a/b --dry-run *": ["", "file", LONG],
    "push base a/b *": ["--message=", "--hardware=x", "extra"],
    "train --output-dir out --config *": ["", "empty", "none.toml", *(f"{name}.toml" for name in FILES)],
    "train --output-dir out --model *": ["", LONG, "pocket@abc", "empty@v", "a\nb", "+", "@", "a/b/c", "pocket+empty"],
    "train --output-dir out --game *": ["", ",", f"{LAKE}=0", f"{LAKE},{LAKE}", f"{LAKE}=2=2", f"{LAKE}={DIGITS}"],
    "train --output-dir out *": [
        *("--sampler=math:pi", "--base=x/y", "--push-to-hub=x", "extra", "--selected-per-group=33", "--checkpoint-every=5"),
        *("--updates=", "--updates=0x10", f"--updates={DIGITS}", "--learning-rate=nan", "--no-save-rollouts=yes"),
    ],
    "train --output-dir out --seeds *": ["", ",", "-1", "3-1", "0-1000", "0,0", "1.5", f"0-{DIGITS}", "0–4"],
    "train --output-dir out --seeds 0-1 *": ["--seed=1", "--push-to-hub=a/b"],
    "curves empty *": ["--x=steps", "--output=a.pdf", "--output=none/a.png", "none"],
}
"""Command → what replaces its * in turn."""


@pytest.mark.parametrize(("call", "words"), CALLS, ids=[words for _, words in CALLS])
def test_a_wrong_argument_is_a_value_error_that_says_what_was_expected(
    call: Callable[[], object], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def corner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corner")
    (folder / "empty").mkdir()
    (folder / "file").write_text("not a folder")
    write_suite(folder / "lake.toml", 3, LAKE)
    for name, content in FILES.items():
        (folder / f"{name}.toml").write_bytes(content)
    return folder


@pytest.mark.parametrize("command", ODD)
def test_odd_names_and_values_are_one_printable_line_and_write_nothing(
    command: str, run: Run, corner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("MSGRPO_RUN", "")  # which `space x` sets
    monkeypatch.chdir(corner)
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    for odd in ODD[command]:
        ended = run(*[odd if argument == "*" else argument for argument in command.split()])
        assert (ended.code, ended.out) == (2, ""), (odd[:50], ended.err)
        [line] = ended.err.splitlines()
        assert line.startswith("error: "), odd[:50]
        assert line.isprintable(), odd[:50]
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before


@pytest.mark.parametrize(("arguments", "words"), COMMANDS)
def test_a_wrong_command_is_one_line_and_overwrites_nothing(
    arguments: str, words: str, msgrpo: Command, flags: list[str], place: Path, tmp_path: Path
) -> None:
    given = arguments.replace("train @", f"train --output-dir {tmp_path}/new").replace("@/", f"{place}/").split()
    if given[:1] == ["train"] and "--config" not in given and "--preset" not in given and len(given) > 1:
        given[1:1] = flags
    before = hashes(place)
    ended = msgrpo(*given, folder=tmp_path)
    assert (ended.code, ended.out) == (2, ""), ended.err
    [line] = ended.said
    assert line.startswith("error: ")
    assert re.search(words.replace("@/", f"{place}/"), line), line
    assert hashes(place) == before


def test_after_a_mistake_is_mended_the_same_folder_can_be_used(msgrpo: Command, flags: list[str], tmp_path: Path) -> None:
    assert msgrpo("train", *flags, "--model", tmp_path / "none", "--output-dir", tmp_path / "run").code == 2
    ended = msgrpo("train", *flags, "--output-dir", tmp_path / "run")
    assert ended.code == 0, ended.err


def test_exhausted_gpu_memory_names_the_knob() -> None:
    with pytest.raises(UserError) as caught, out_of_memory("sampling", "--max-rows"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nGPU 0 has a total capacity of 8 GiB")
    assert str(caught.value) == (
        "the GPU's memory is exhausted while sampling (CUDA out of memory. Tried to allocate 2 GiB.): "
        "lower --max-rows, then continue with --resume"
    )
