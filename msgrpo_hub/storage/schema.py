"""The schema of stored episodes, a table of episodes and a table of their steps: of evaluations, rollouts and datasets alike."""

from __future__ import annotations

import pyarrow as pa

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
    "temperature": (_F, "sampling temperature; null if nothing is sampled"),
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

COLUMNS = dict(zip(CONFIGS, (EPISODE_COLUMNS, STEP_COLUMNS), strict=True))
SCHEMAS = {
    config: pa.schema([(name, kind) for name, (kind, _) in columns.items()], metadata={"format": FORMAT})
    for config, columns in COLUMNS.items()
}
"""Configuration → its columns, with the version of the format."""
EXAMPLES = pa.schema([("prompt", _MESSAGES), ("completion", _MESSAGES)])
