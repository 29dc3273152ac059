"""Cards state only measured facts and show foreign texts as text; the stored examples are current."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml  # type: ignore[import-untyped]
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import find_results
from msgrpo_hub.evaluation.statistics import over_seeds
from msgrpo_hub.games import make_game
from msgrpo_hub.hub.adapter_card import Figure, FinishedRun, GameTable, Row, read_run, render_adapter, task_score
from msgrpo_hub.hub.adapters import public_config, published_results
from msgrpo_hub.hub.bases import Base
from msgrpo_hub.training import TrainConfig, train
from msgrpo_hub.training.run_folder import RunFolder
from tests.hub_server.cards import check_card as check_as_the_hub_does
from tests.test_docs import script

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "model_cards" / "examples"
LAKE, SNAKE = "FrozenLake-NotSlippery-v1", "Snake-Solo-v1"
COMMIT, HASH = "0123456789abcdef0123456789abcdef01234567", "ab" * 32
BASE = Base(repo_id="Qwen/Qwen", commit=COMMIT, license={"license": "other", "license_name": "qwen-research"})
HOSTILE = "MIT\n\n# Owned\n<script src=https://evil.example/x></script> [a](javascript:b()) ![c](https://e.example) `d` | *e* _f_"


@cache
def example() -> FinishedRun:
    return read_run(EXAMPLES / "adapter")


def card(base: Base = BASE, rollouts: str | None = "ada/rollouts", config: dict[str, Any] | None = None, **changes: Any) -> str:
    own = dataclasses.replace(example().config, **(config or {}))
    return render_adapter(dataclasses.replace(example(), config=own, **changes), "ada/lake", own, base, rollouts)


def figure(mean: float, spread: float | None = 0.05) -> Figure:
    return Figure(mean=mean, low=None if spread is None else mean - spread, high=None if spread is None else mean + spread)


def row(mean: float, spread: float | None = 0.05) -> Row:
    scores = dict.fromkeys(("success", "reward", "success_greedy", "reward_greedy"), figure(mean, spread))
    return {**scores, "unreadable_rate": 0.125, "truncated_rate": 0.0, "illegal_rate": 0.5}


def table(adapter: Row, game: str = LAKE, **more: Any) -> GameTable:
    return GameTable(game=make_game(game), players={"base": row(0.25), "adapter": adapter}, boards=75, **more)


# ---- the stored examples


def test_no_example_is_stale() -> None:
    rendered: dict[Path, str] = script("cards").rendered()
    stale = [str(path.relative_to(ROOT)) for path, text in rendered.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run `python docs/cards.py`"


@pytest.mark.parametrize("kind", ["adapter", "base", "results", "rollouts"])
def test_the_hub_accepts_every_example_which_installs_cites_and_shows_pictures_with_words(kind: str) -> None:
    text = (EXAMPLES / kind / "README.md").read_text(encoding="utf-8")
    assert check_as_the_hub_does("model" if kind in ("adapter", "base") else "dataset", text) == ([], [])
    assert "pip install msgrpo-hub" in text
    assert ModelCard(text).data.to_dict()["license"]
    assert kind == "base" or "Dilkes, Jim and Yazdanpanah, Vahid and Stein, Sebastian" in text
    assert not re.search(r"\bNone\b|\{\{|\}\}|\{%|\n\n\n| $", text, re.MULTILINE)
    for words, picture in re.findall(r"!\[(.*?)\]\((.*?)\)", text):
        assert (EXAMPLES / kind / picture).exists(), picture
        assert len(words.split()) >= 8, words


# ---- the card of an adapter


def test_the_front_matter_names_the_base_the_results_and_their_intervals() -> None:
    metadata = ModelCard(card()).data.to_dict()
    assert (metadata["base_model"], metadata["base_model_relation"]) == ("Qwen/Qwen", "adapter")
    assert (metadata["library_name"], metadata["pipeline_tag"]) == ("peft", "text-generation")
    assert (metadata["license"], metadata["license_name"]) == ("other", "qwen-research")
    assert metadata["datasets"] == ["ada/rollouts"]
    text = card(games=(table(row(1 / 3)),))
    [result] = yaml.safe_load(text.split("---\n")[1])["model-index"][0]["results"]
    reward, success = result["metrics"]
    assert (result["dataset"]["type"], result["dataset"]["split"]) == (LAKE, "test")
    assert (reward["type"], reward["value"], success["type"]) == ("mean_reward", 0.3333, "success_rate")
    assert reward["args"] == {"episodes": 200, "temperature": 1.0, "interval_95": [0.2833, 0.3833]}


def test_the_card_states_training_players_machine_and_rules() -> None:
    text = card()
    assert "100 updates of 8 × 32 episodes" in text
    assert "(25,600 in all)" in text
    assert re.search(r"It took \d+ s \(\d+ sampling, \d+ training, \d+ testing\) on\n.*, 1 process with \d CPU thread", text)
    assert "`learning_rate` is `0.003` (default `1e-05`)" in text
    adapter, base = (example().games[0].players[name]["success"] for name in ("adapter", "base"))
    assert f"| **adapter** | {adapter} |" in text
    assert f"| base | {base} |" in text
    for rule in make_game(LAKE).rules:
        assert f"- {rule}\n" in text
    faulty = card(games=(table(row(0.5)),))
    assert "12.5 % were unparsed, 0.0 % were truncated at\n32 tokens, 50.0 % named an illegal action" in faulty


@pytest.mark.parametrize(
    ("adapter", "verdict", "words"),
    [
        (row(0.75), "better", None),
        (row(0.28), "inconclusive", "is not significant"),
        (row(0.1), "worse", "plays worse than its base"),
        (row(0.75, None), "better", "too few episodes"),
        (row(0.75), None, None),
    ],
)
def test_the_card_warns_unless_the_adapter_is_shown_to_help(adapter: Row, verdict: Any, words: str | None) -> None:
    text = card(games=(table(adapter, verdict=verdict),))
    warnings = ["is not significant", "plays worse than its base", "too few episodes"]
    assert [warning for warning in warnings if warning in text] == ([words] if words else [])


def test_unknown_facts_are_omitted() -> None:
    text = card(
        base=Base(repo_id="gpt2", commit=COMMIT),
        rollouts=None,
        folder=RunFolder(Path("nowhere")),
        games=(GameTable(game=make_game(LAKE), players={}),),
        memory_mb=None,
    )
    assert not {"license", "datasets", "model-index"} & ModelCard(text).data.to_dict().keys()
    assert "The base states no licence" in text
    assert "was not evaluated" in text
    assert "Not measured: whether it still follows the prompt" in text
    assert not re.search(r"\bNone\b|replay.svg|\n\n\n| $", text, re.MULTILINE)
    assert check_as_the_hub_does("model", text) == ([], [])


MS_GRPO, SAME, OWN = "by playing, with [MS-GRPO]", "give the same weights", dataclasses.replace(make_game(LAKE), id="Mine-v1")  # type: ignore[type-var]
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
TEACHER, FRONT = {"teacher": "optimal", "taught": 3}, "- reinforcement-learning"
OTHERWISE = {"resumed_otherwise": [{"threads": [1, 2]}, {"threads": [2, 1], "torch": ["2", "3"]}]}
Words = tuple[str, ...]
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], Words, Words]] = {
    "rewards": ({}, {}, (f"It learned from rewards only, {MS_GRPO}", FRONT), ("teacher",)),
    "a teacher": (TEACHER | {"updates": 3}, {"signals": ()}, ("a teacher (behaviour cloning), and not from",), (MS_GRPO, FRONT)),
    "both": (TEACHER, {"signals": (4,)}, (f"a teacher, and then from rewards, {MS_GRPO}", "The first 3 updates are"), ("only",)),
    "the best weights are the teacher's": (
        TEACHER | {"keep": "best"},
        {"signals": (40,), "summary": {"adapter_update": 20}},
        ("and not from rewards", "from update 20, the best on the 50 validation episodes"),
        (MS_GRPO,),
    ),
    "nothing learned": ({}, {"signals": ()}, ("**It learned nothing: no update",), ("learned from", MS_GRPO)),
    "continued": (
        {"init_adapter": f"ada/first@{COMMIT}"},
        {},
        (f"from rewards in this run, {MS_GRPO}", f"started from the adapter `ada/first@{COMMIT}`", "episode of this run started"),
        ("rewards only", "No training episode started"),
    ),
    "interrupted": ({}, {"summary": OTHERWISE}, ("with other values of `threads`, `torch`.", "repeat the training:\n"), (SAME,)),
    "a GPU": ({}, {"summary": {"device": "cuda"}}, ("repeat the training:\n",), (SAME,)),
    "own credit": (
        {"credit": "mine:Credit"},
        {},
        ("not in this repository: `mine:Credit`", "config.toml --credit mine:Credit --output", "(default `whole-episode`)"),
        ("prompt-format",),
    ),
    "own game": ({}, {"games": [OWN]}, ("`Mine-v1` is no part of msgrpo-hub: install",), ()),
    "several games": (
        {"game": f"{LAKE},{SNAKE}"},
        {"games": [make_game(LAKE), make_game(SNAKE)]},
        (f"`{LAKE}` and `{SNAKE}`.",),
        (),
    ),
    "4 bits": ({"load_in_4bit": True}, {}, (" --load-in-4bit\n", "load_in_4bit=True)", "msgrpo-hub[quantized]"), ("--dtype",)),
    "another type": ({"dtype": "bfloat16"}, {}, (" --dtype bfloat16\n", 'dtype="bfloat16")'), ("4bit",)),
    "a pretrained base": (
        {},
        {"base": dataclasses.replace(BASE, repo_id=SMOLLM2)},
        (f"A LoRA adapter of [{SMOLLM2}](https://huggingface.co/{SMOLLM2}/tree/{BASE.commit})", f"base_model: {SMOLLM2}"),
        ("ada/pocket", "built-in"),
    ),
    "no gain": ({}, {"gain": 0.0}, ("The adapter gains on its base in no test episode.",), ("largest gain",)),
    "a gain": ({}, {"gain": 0.5}, ("the episode with the largest gain",), ("in no test episode",)),
    "an older version": ({}, {"summary": {"versions": {"msgrpo_hub": "0.0.7"}}}, ("the package `msgrpo_hub` 0.0.7.",), ()),
}
"""Changes of the settings and of the run; what its card says, and what it does not say."""


@pytest.mark.parametrize(("settings", "run", "said", "not_said"), KINDS.values(), ids=KINDS)
def test_every_sentence_follows_from_the_record_of_the_run(
    settings: dict[str, Any], run: dict[str, Any], said: Words, not_said: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msgrpo_hub.games.seeds.make_game", lambda name: OWN if name == OWN.id else make_game(name))
    one = table(row(0.5), gain=run.get("gain"))
    changed = {"signals": run.get("signals", (1,)), "summary": example().summary | run.get("summary", {})}
    games = tuple(dataclasses.replace(one, game=game) for game in run.get("games", [make_game(LAKE)]))
    front, _, text = card(run.get("base", BASE), config=settings, games=games, **changed)[4:].partition("---\n")
    text = front.partition("model-index")[0] + text
    assert [words for words in said if words not in text] == []
    assert [words for words in not_said if words in text.partition("## Intended use")[0]] == []
    assert "learned other" not in text
    assert not re.search(r"\bNone\b|\n\n\n| $", text, re.MULTILINE)


def test_a_local_first_adapter_is_named_by_its_hash_alone() -> None:
    published = public_config(TrainConfig(init_adapter="ada/first"), BASE, "0123abcd")
    assert published.init_adapter == "ada/first@0123abcd"
    private = public_config(TrainConfig(init_adapter="runs/zaphod/adapter"), BASE, HASH)
    text = card(config={"init_adapter": private.init_adapter}, summary=example().summary | {"init_adapter_commit": HASH})
    assert "zaphod" not in text
    assert "SHA-256 hash of its folder starts with `abababababab`" in text
    assert "msgrpo train --config config.toml" not in text


def test_texts_of_others_mark_nothing_up() -> None:
    def markup(text: str) -> Counter[str]:
        """How often a card has a heading, a link, HTML and so on."""
        base = dataclasses.replace(BASE, license={"license": "other", "license_name": text})
        summary = example().summary | {"hardware": text, "versions": {text: text}}
        shown = card(base, config={"init_adapter": text}, summary=summary, lora_layers=(text,))
        assert "# Owned" not in shown.splitlines()
        blocks = MarkdownIt("commonmark").enable("table").parse(ModelCard(shown).text)
        parts = [*blocks, *(part for block in blocks for part in block.children or ())]
        return Counter(part.type for part in parts if part.type not in ("text", "softbreak"))

    assert markup(HOSTILE) == markup("harmless")


# ---- reading a run


def test_a_run_of_several_seeds_has_figures_over_seeds_and_another_states_its_one_seed(tmp_path: Path) -> None:
    rewards = {0: 0.75, 1: 0.9, 2: 0.8}
    for seed, reward in rewards.items():
        own = Path(shutil.copytree(EXAMPLES / "adapter", tmp_path / f"seed-{seed}"))
        settings, stored = own / "config.toml", json.loads((own / "summary.json").read_text(encoding="utf-8"))
        settings.write_text(re.sub(r"^seed = \d+$", f"seed = {seed}", settings.read_text(encoding="utf-8"), flags=re.MULTILINE))
        (own / "summary.json").write_text(json.dumps(stored | {"adapter": stored["adapter"] | {"reward": reward}}))
    other = Path(shutil.copytree(EXAMPLES / "adapter", tmp_path / "seed-3"))
    (other / "config.toml").write_text((other / "config.toml").read_text(encoding="utf-8").replace("beta = ", "beta = 1"))
    run, found = read_run(tmp_path / "seed-1"), over_seeds(rewards, (0.0, 1.0))
    text = render_adapter(run, "ada/lake", run.config, BASE, None)
    assert "This run is one of 3 that differ in their seed only." in text
    assert f"| reward | {found} | 0.076 | 0.750 | 0.900 |\n" in text
    assert "One run with one seed" not in text
    assert "One run with one seed" in card()
    assert check_as_the_hub_does("model", text) == ([], [])
    assert published_results(run, run.config, BASE)["over_seeds"][LAKE]["reward"] == found.record()
    assert not read_run(other).over_seeds


def test_a_run_of_several_games_has_one_table_and_one_result_for_each(tiny_model: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"updates": 1, "groups": 2, "group_size": 2, "selected_per_group": 1, "max_new_tokens": 4}
    tested: dict[str, Any] = {"eval_every": 0, "test_episodes": 3, "lora_rank": 4, "lora_alpha": 8}
    config = TrainConfig(game=f"{LAKE}=3,{SNAKE}", model=str(tiny_model), **settings, **tested)
    summary = train(config, tmp_path, show_progress=False)
    run = read_run(tmp_path)
    text = render_adapter(run, "ada/both", config := public_config(run.config, BASE), BASE, None)
    assert check_as_the_hub_does("model", text) == ([], [])
    assert f"`{LAKE}` (weight 3) and `{SNAKE}` (weight 1)" in text
    assert re.findall(r"^\*\*(\S+-v1)\*\*\n\n\| player", text, re.MULTILINE) == [LAKE, SNAKE]
    [of_snake] = summary["other_games"]
    low, high = summary["random"]["reward_interval"]
    means = [f"{summary['random']['reward']:.3f} [{low:.3f}, {high:.3f}]", f"{of_snake['random']['reward']:.3f} (no interval)"]
    assert re.findall(r"^\| random \| ([^|]*) \|", text, re.MULTILINE) == means
    results = published_results(run, config, BASE)
    assert (results["game"], [other["game"] for other in results["other_games"]]) == (LAKE, [SNAKE])
    assert results["other_games"][0]["players"]["adapter"]["reward"].mean == of_snake["adapter"]["reward"]
    assert [table.verdict for table in run.games] == ["inconclusive"] * 2, "one update of a random model changes nothing"
    (tmp_path / "summary.json").write_text(json.dumps(summary | {"other_games": []}))
    with pytest.raises(UserError, match=f"are damaged .'{SNAKE}'.: expected"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("wins", "verdict"),
    [((20, 30), "better"), ((30, 20), "worse"), ((20, 22), "inconclusive")],
)
def test_an_adapter_is_compared_with_its_base_episode_by_episode(wins: tuple[int, int], verdict: str, tmp_path: Path) -> None:
    """20 and 30 of 50 have intervals that overlap; but where one wins in ten episodes and the other in none, they differ."""
    run = Path(shutil.copytree(EXAMPLES / "adapter", tmp_path / "run"))
    table = pq.read_table(run / "test_episodes.parquet")
    first = {row["player"]: row for row in table.to_pylist() if row["temperature"] == 1.0}
    rows = [
        first[player] | {"index": index, "success": index < won, "reward": float(index < won)}
        for player, won in zip(("base", "adapter"), wins, strict=True)
        for index in range(50)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), run / "test_episodes.parquet")
    assert [table.verdict for table in read_run(run).games] == [verdict]
    rows[0]["reward"] = 7.0
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), run / "test_episodes.parquet")
    with pytest.raises(UserError, match="are damaged"):
        read_run(run)


def test_results_of_eval_are_on_the_card_with_their_records(played: Path) -> None:
    [result, _] = find_results(played / "random")
    result = dataclasses.replace(result, config=result.config | {"identity": result.config["identity"] | {"temperature": 0.5}})
    score, text = task_score(result), card(results=(result,))
    assert f"| {score['task']} | tiny, test | 30 | {score['reward']} | {score['success']} |" in text
    assert f"[generate, T = 0.5]({score['folder']})" in text
    entry = yaml.safe_load(text.split("---\n")[1])["model-index"][0]["results"][1]
    assert entry["dataset"]["config"] == "tiny"
    assert entry["metrics"][0]["args"]["temperature"] == 0.5
