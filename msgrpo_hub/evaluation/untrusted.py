"""Runs from untrusted sources: accepted only if everything in their files follows from the rules.

The files are JSON and Parquet, which run no code. Sizes, keys, names and columns are checked before anything is computed from
them. Then the run is replayed, as by `msgrpo verify`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.results import CONFIG, Result, load_result
from msgrpo_hub.evaluation.suites import repeats_of
from msgrpo_hub.evaluation.verify import harness_problem, not_replayed, problems
from msgrpo_hub.games import make_game
from msgrpo_hub.storage import run_files
from msgrpo_hub.storage.schema import matches
from msgrpo_hub.storage.shards import read_bounded

FILES = {run_files.CONFIG: 100_000, run_files.RESULTS: 100_000, run_files.EPISODES: 10_000_000, run_files.STEPS: 100_000_000}
"""The files of a published run, with the largest size of each in bytes."""

_MOST_EPISODES = 10_000
_LONGEST_REPLY = 200_000  # characters
_LARGEST_UNPACKED = 2_000_000_000  # bytes of a Parquet file in memory

_NAME = re.compile(r"[A-Za-z0-9][\w .,:;()@+#/=~%?&-]{0,199}", re.ASCII)
"""The characters of names. Names are printed in terminals and in Markdown."""

_FILLED = {
    "default": "game seed member index terminated truncated error reward success steps unreadable truncated_replies illegal "
    "prompt_format",
    "steps": "game seed member index turn observation reply finish status legal reward legal_actions optimal_actions prompt_ids "
    "token_ids log_probs entropies",
}
"""Columns that have no null in a run."""


def check_sizes(sizes: Mapping[str, int]) -> None:
    """Checks the sizes of a run's files. Raises `UserError` for a missing or too large file."""
    for name, largest in FILES.items():
        if name not in sizes:
            raise UserError(f"it has no {name}")
        if sizes[name] > largest:
            raise UserError(f"its {name} has {sizes[name]:,} bytes: expected at most {largest:,}")


def checked_run(folder: Path) -> Result:
    """The run in a folder, verified by replaying it.

    Raises:
        UserError: the run has a problem and must not be displayed; the message names the first one.
    """
    check_sizes({name: (folder / name).stat().st_size for name in FILES if (folder / name).is_file()})
    config, summary = (_read_json(folder / name) for name in (run_files.CONFIG, run_files.RESULTS))
    _check_config(config)
    if summary.get("complete") is not True:
        raise UserError("it is not complete")
    total = config["episodes"] * repeats_of(config)
    episodes = _read_table(folder / run_files.EPISODES, "default", total)
    steps = _read_table(folder / run_files.STEPS, "steps", total * make_game(config["task"]).horizon)
    if episodes.num_rows != total:
        raise UserError(f"it has {episodes.num_rows} episodes, its configuration says {total}")
    for column in ("reply", "observation"):
        if (pc.max(pc.utf8_length(steps[column])).as_py() or 0) > _LONGEST_REPLY:
            raise UserError(f"it has a {column} of more than {_LONGEST_REPLY:,} characters")
    result = load_result(folder)
    if messages := [*problems(result), *not_replayed(result.task, result.prompt_format)]:
        raise UserError(messages[0])
    return result


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=int)  # int refuses NaN and Infinity
    except (OSError, ValueError, RecursionError) as error:  # RecursionError: deeply nested brackets
        raise UserError(f"its {path.name} cannot be read ({type(error).__name__})") from error
    if not isinstance(value, dict):
        raise UserError(f"its {path.name} is not a JSON object")
    return value


def _check_config(config: Mapping[str, Any]) -> None:
    """Checks keys and values that are computed with or printed before the run is replayed."""
    if config.keys() - {"repeats"} != CONFIG.keys():
        raise UserError(f"its {run_files.CONFIG} has other keys: expected {', '.join(sorted(CONFIG))}")
    if problem := harness_problem(config):
        raise UserError(problem)
    episodes, repeats, identity = config["episodes"], config.get("repeats", 2), config["identity"]
    if type(episodes) is not int or not 1 <= episodes <= _MOST_EPISODES:
        raise UserError(f"its number of episodes is not between 1 and {_MOST_EPISODES:,}")
    if type(repeats) is not int or not 2 <= repeats <= max(_MOST_EPISODES // episodes, 2):
        raise UserError(f"its number of repeats is not between 2 and {max(_MOST_EPISODES // episodes, 2):,}")
    if not isinstance(identity, dict) or len(identity) > 40 or "kind" not in identity:
        raise UserError("its identity does not say what kind of player it is")
    names = [*(config[key] for key in CONFIG.keys() - {"harness", "identity", "episodes"}), *identity]
    names += [value for value in identity.values() if isinstance(value, str)]
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        raise UserError("it has a name that is not plain: expected letters, digits and simple punctuation")
    if any(isinstance(identity.get(name), str) for name in ("temperature", "max_new_tokens")):
        raise UserError("its temperature or its token limit is not a number")
    numbers = [value for value in identity.values() if value is not None and not isinstance(value, str)]
    if not all(isinstance(number, (bool, int, float)) and abs(number) < 1e12 for number in numbers):  # false for infinity and NaN
        raise UserError("its identity has values that are neither plain names nor numbers")


def _read_table(path: Path, config: str, most_rows: int) -> pa.Table:
    """The table of a Parquet file, checked for size, columns, types and nulls."""
    try:
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:
            if not matches(file.schema_arrow, config) or file.metadata.num_rows > most_rows:
                raise UserError(f"its {path.name} has other columns, or more rows than the game allows")
            table = read_bounded(file, _LARGEST_UNPACKED)
        table.validate(full=True)
    except UserError:
        raise
    except (OSError, ValueError, NotImplementedError) as error:  # ValueError: what Arrow raises for a broken file
        raise UserError(f"its {path.name} cannot be read ({type(error).__name__})") from error
    if incomplete := [name for name in _FILLED[config].split() if table[name].null_count]:
        raise UserError(f"its {path.name} has rows without {incomplete[0]}")
    return table
