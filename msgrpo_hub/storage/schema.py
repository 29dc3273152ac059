"""The one schema of stored episodes: a table of episodes, a table of their steps, and the tables of the first build.

Runs of `msgrpo eval`, the rollouts of a training, published datasets and the test episodes of a training are all written
with these columns. A file has its version in the metadata of its schema, and its columns must be exactly those of a version.
The names `unreadable`, `truncated_reply` and `truncated_replies` are those of the first build; visible texts say unparsed and
truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from msgrpo_hub.agent.prompt_formats import THINK_ACTION

FORMAT = "msgrpo-episodes-v2"
"""Version of the columns and their meanings; a change of either needs a new version."""

CONFIGS = ("default", "steps")
"""The two tables, by their configuration names in `datasets.load_dataset`."""

_S, _B, _I, _L, _F = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.float64()
_MESSAGES = pa.list_(pa.struct([("role", _S), ("content", _S)]))

EPISODE_COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "episode": (_S, "id of the episode, the same in both configurations"),
    "split": (_S, "`train`: played while training; `validation`, `test`: played to evaluate"),
    "game": (_S, "id of the game, with its version"),
    "seed": (_L, "seed of the initial state, which the episodes of a group share"),
    "member": (_I, "number in the group: its dynamics and its sampling are its own"),
    "index": (_I, "number of the episode in its split, from 0; null in training"),
    "update": (_I, "update that it was played for, the first is 1; null in evaluation"),
    "advantage": (_F, "advantage of its return in its group; null in evaluation"),
    "selected": (_B, "whether the update learned from it (the sampler selected it); null in evaluation"),
    "reward": (_F, "sum of the rewards, without any format penalty"),
    "success": (_B, "whether the game was won"),
    "terminated": (_B, "ended by the rules"),
    "truncated": (_B, "ended by the horizon"),
    "error": (_S, "why it stopped before its end; empty if it did not"),
    "steps": (_I, "number of steps"),
    "actions": (pa.list_(_S), "the actions parsed from the replies; null where a reply has none"),
    "unreadable": (_I, "unparsed: replies that ended without an action that could be parsed"),
    "truncated_replies": (_I, "truncated: replies that reached the token limit before an action"),
    "illegal": (_I, "actions that were parsed and were not legal"),
    "prompt_tokens": (_I, "tokens read; null if they are not known"),
    "reply_tokens": (_I, "tokens written; null as above"),
    "value_optimal": (_F, "expected return of optimal play from the initial state; null if the game is not solved"),
    "value_random": (_F, "expected return of uniformly random actions; null as above"),
    "regret": (_F, "expected return given away by all its actions; null as above"),
    "luck_adjusted": (_F, "value_optimal − regret: the reward without the luck of the dynamics; null as above"),
    "optimal_steps": (_I, "steps with an optimal action; null as above"),
    "first_mistake": (_I, "first step (from 0) whose action was not optimal, -1 if every action was; null as above"),
    "player": (_S, "who played; `training`: the base with the adapter as it was after update − 1 updates"),
    "base": (_S, "base model; null for players without one"),
    "base_revision": (_S, "its commit, or the hash of its folder"),
    "adapter": (_S, "adapter of an evaluation; null for a player without one"),
    "adapter_revision": (_S, "its commit, or the hash of its folder"),
    "temperature": (_F, "sampling temperature; null if nothing is sampled, or if it adapted while training"),
    "max_new_tokens": (_I, "limit of a reply, in tokens"),
    "prompt_format": (_S, "name of the prompt format: how the player was asked and how its replies were parsed"),
    "run": (_S, "hash of the configuration that it was played with"),
}
"""Columns of the configuration `default`: name → (type, meaning)."""

STEP_COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    **{name: EPISODE_COLUMNS[name] for name in ("episode", "game", "seed", "member", "index", "update")},
    "turn": (_I, "number of the step, from 0"),
    "prompt": (_MESSAGES, "chat messages that the player was given; null for a prompt format that is not built in"),
    "reply": (_S, "what it answered, verbatim"),
    "finish": (_S, "`stop`: by its end token; `length`: truncated at the token limit"),
    "status": (_S, "`ok`; `unreadable`: unparsed; `truncated_reply`: truncated before an action"),
    "action": (_S, "action parsed from the reply; null if it has none"),
    "legal": (_B, "whether it was legal"),
    "reward": (_F, "reward of the step"),
    "legal_actions": (pa.list_(_S), "all legal actions"),
    "optimal_actions": (pa.list_(_S), "all optimal actions; empty if the game is not solved"),
    "regret": (_F, "expected return given away by the action; null if the game is not solved"),
    "success": EPISODE_COLUMNS["success"],
    "advantage": (_F, "advantage of this step, as the credit of the training gave it; null in evaluation"),
    "selected": EPISODE_COLUMNS["selected"],
    "observation": (_S, "what the game showed, which is a part of the prompt"),
    "prompt_tokens": (_I, "tokens of the prompt; null if they are not known"),
    "reply_tokens": (_I, "tokens of the reply; null as above"),
    "prompt_ids": (pa.list_(_I), "token ids of the prompt; empty if they are not known"),
    "token_ids": (pa.list_(_I), "token ids of the reply, as sampled"),
    "log_probs": (pa.list_(_F), "log-probability of each token under the distribution that it was sampled from"),
    "entropies": (pa.list_(_F), "entropy of that distribution, in nats"),
}
"""Columns of the configuration `steps`."""

COLUMNS = dict(zip(CONFIGS, (EPISODE_COLUMNS, STEP_COLUMNS), strict=True))

_TOKENS: tuple[int, ...] = ()
_DEFAULTS: Mapping[str, Any] = {
    "prompt_format": THINK_ACTION.name,  # the only format of the first build
    "error": "",
    "member": 0,
    **dict.fromkeys(("prompt_ids", "token_ids", "log_probs", "entropies"), _TOKENS),
}
"""Values of current columns that a file of the first build lacks; other missing columns are null."""


def schema(config: str) -> pa.Schema:
    """The columns of a configuration, with the version of the format."""
    return pa.schema([(name, kind) for name, (kind, _) in COLUMNS[config].items()], metadata={"format": FORMAT})


@dataclass(frozen=True, kw_only=True)
class Version:
    """The tables as one version of the format stores them."""

    name: str
    columns: Mapping[str, Mapping[str, pa.DataType]]
    """Configuration → stored column → type, in their order."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Stored column → current name."""
    derived: Mapping[str, Callable[[pa.Table], list[Any]]] = field(default_factory=dict)
    """Current column → its values, from a stored table of episodes."""

    def matches(self, stored: pa.Schema, config: str) -> bool:
        """Whether a file has exactly the columns of this version, and claims no other."""
        claimed = (stored.metadata or {}).get(b"format", self.name.encode())
        expected = self.columns.get(config)
        return expected is not None and claimed == self.name.encode() and stored.equals(pa.schema(list(expected.items())))

    def upgraded(self, table: pa.Table, config: str, known: Mapping[str, Any]) -> pa.Table:
        """A stored table with the current columns.

        Args:
            table: the stored table.
            config: `default` or `steps`.
            known: values of columns that the file lacks, such as the game of a run of the first build.
        """
        if self is LATEST:
            return table
        present = {self.renamed.get(name, name): table[name] for name in table.column_names}
        for name, values in self.derived.items():
            present[name] = pa.array(values(table), COLUMNS[config][name][0])
        return pa.table({name: _filled(name, config, present, known, len(table)) for name in COLUMNS[config]}, schema(config))

    def as_stored(self, table: pa.Table, config: str) -> pa.Table:
        """A table with the current columns as this version stores it."""
        columns = self.columns[config]
        return table.select([self.renamed.get(name, name) for name in columns]).rename_columns(list(columns))


def _filled(name: str, config: str, present: Mapping[str, Any], known: Mapping[str, Any], rows: int) -> Any:
    kind, value = COLUMNS[config][name][0], known.get(name, _DEFAULTS.get(name))
    if name not in present:
        return pa.array([value] * rows, kind)
    return present[name].fill_null(pa.scalar(value, kind)) if name in known else present[name]


def _stored(config: str, names: str, renamed: Mapping[str, str] | None = None) -> dict[str, pa.DataType]:
    return {name: COLUMNS[config][(renamed or {}).get(name, name)][0] for name in names.split()}


LATEST = Version(name=FORMAT, columns={config: _stored(config, " ".join(COLUMNS[config])) for config in CONFIGS})

_DRAWN = {"drawn": "selected"}
FIRST_ROLLOUTS = Version(
    name="msgrpo-rollouts-v1",
    columns={
        "default": _stored(
            "default",
            "episode split game seed member update advantage drawn reward success terminated truncated error steps actions "
            "unreadable truncated_replies illegal prompt_tokens reply_tokens value_optimal value_random regret luck_adjusted "
            "optimal_steps first_mistake player base base_revision adapter adapter_revision temperature max_new_tokens run",
            _DRAWN,
        ),
        "steps": _stored(
            "steps",
            "episode game seed member update turn prompt reply finish status action legal reward legal_actions optimal_actions "
            "regret success advantage drawn observation prompt_tokens reply_tokens prompt_ids token_ids log_probs entropies",
            _DRAWN,
        ),
    },
    renamed=_DRAWN,
)
"""Rollouts of the first build, whose only credit gave each step the advantage of its episode."""

FIRST_RUNS = Version(
    name="msgrpo-runs-v1",
    columns={
        "default": _stored(
            "default",
            "index seed member terminated truncated reward success steps unreadable truncated_replies illegal prompt_tokens "
            "reply_tokens value_optimal value_random regret luck_adjusted optimal_steps first_mistake",
        ),
        "steps": _stored(
            "steps",
            "index turn observation reply finish action status legal reward prompt_tokens reply_tokens legal_actions "
            "optimal_actions regret",
        ),
    },
)
"""Runs of `msgrpo eval` of the first build; their files have no version."""

FIRST_TESTS = Version(
    name="msgrpo-test-episodes-v1",
    columns={
        "default": {
            **_stored("default", "player"),
            "decoding": _S,
            **_stored("default", "index seed reward success unreadable illegal actions"),
        }
    },
    derived={
        "temperature": lambda table: [0.0 if value == "greedy" else None for value in table["decoding"].to_pylist()],
        "steps": lambda table: [len(actions) for actions in table["actions"].to_pylist()],
        "split": lambda table: ["test"] * len(table),
    },
)
"""test_episodes.parquet of the first build: `unreadable` includes truncated replies, and sampled episodes have no temperature."""

VERSIONS = (LATEST, FIRST_ROLLOUTS, FIRST_RUNS, FIRST_TESTS)


def version_of(stored: pa.Schema, config: str) -> Version | None:
    """The version whose columns a file has; None if there is no such version."""
    return next((version for version in VERSIONS if version.matches(stored, config)), None)
