"""Episodes as traces that other programs read: sessions of the agent Pi (JSONL, version 3) and OpenEnv's `TrainingTrace` (JSON).

Both are written from the formats' descriptions and need neither program. tests/interop reads them with the real packages.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgrpo_hub.agent.prompt_formats import PROMPT_FORMATS, Message, PromptFormat
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.storage.tables import Origin, Rollout, episode_id, prompts_of, valid_text

PI, OPENENV = "traces", "training-traces"
"""Folders of a data set: sessions of Pi, and OpenEnv's training traces; each file is one episode."""

TRACE = re.compile(rf"{PI}/[A-Za-z0-9-]+\.jsonl|{OPENENV}/[A-Za-z0-9-]+\.json")
"""The names of these files."""

_PI_VERSION, _OPENENV_VERSION = 3, 1
_WRITER = "msgrpo_hub"


def conversation(episode: Episode, prompt_format: PromptFormat | None) -> list[Message]:
    """An episode as one conversation: the rules, then the request and the reply of each turn.

    A player of a format without history did not see it whole: its prompts were the rules and one request.

    Args:
        episode: an episode with at least one step.
        prompt_format: the format it was played in; None for one that is not built in, whose requests are then observations.
    """
    prompts = prompts_of(episode, prompt_format) if prompt_format else [_bare(step.observation) for step in episode.steps]
    messages = [message for message in prompts[0] if message["role"] == "system"]
    for prompt, step in zip(prompts, episode.steps, strict=True):
        messages += [prompt[-1], {"role": "assistant", "content": valid_text(step.completion.text)}]
    return messages


def _bare(observation: str) -> list[Message]:
    return [{"role": "user", "content": observation}]


# ---- Pi


def pi_session(rollout: Rollout, origin: Origin) -> str:
    """An episode as a session file of Pi: a header, the name of the session, then its messages, each the child of the last.

    Pi has no system role, so the rules stand in the first message of the user. It wants times, and an episode has none: the
    times count the messages, one a second from 1970. `cwd` is the game.
    """
    head = {"type": "session", "version": _PI_VERSION, "id": episode_id(rollout, origin), "timestamp": _time(0)}
    entries: list[dict[str, Any]] = [{"type": "session_info", "name": title(rollout.episode)}]
    for number, message in enumerate(_pi_messages(rollout, origin), start=1):
        entries.append({"type": "message", "message": message | {"timestamp": 1000 * number}})
    linked = [
        {"type": entry["type"], "id": f"{number:08x}", "parentId": f"{number - 1:08x}" if number else None}
        | {"timestamp": _time(number)}
        | entry
        for number, entry in enumerate(entries)
    ]
    lines = [head | {"cwd": rollout.episode.game_id}, *linked]
    return "".join(json.dumps(line) + "\n" for line in lines)


def title(episode: Episode) -> str:
    """The name of an episode, and how it ended."""
    end = "success" if episode.success else "no success"
    return f"{episode.game_id}, seed {episode.seed}, member {episode.member}: reward {episode.reward:g}, {end}"


def _pi_messages(rollout: Rollout, origin: Origin) -> Iterator[dict[str, Any]]:
    replies = iter(rollout.episode.steps)
    told = conversation(rollout.episode, PROMPT_FORMATS.get(rollout.prompt_format))
    for before, message in pairwise([Message(role="", content=""), *told]):
        if message["role"] == "system":
            continue
        text = f"{before['content']}\n\n{message['content']}" if before["role"] == "system" else message["content"]
        own = _pi_reply(next(replies).completion, origin) if message["role"] == "assistant" else {}
        yield {"role": message["role"], "content": [{"type": "text", "text": text}], **own}


def _pi_reply(reply: Completion, origin: Origin) -> dict[str, Any]:
    """What Pi wants to know of a reply. It cost nothing."""
    read, written = reply.prompt_tokens or 0, reply.reply_tokens or 0
    free = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0)
    usage = {"input": read, "output": written, "cacheRead": 0, "cacheWrite": 0, "totalTokens": read + written, "cost": free}
    model = origin.adapter or origin.base or origin.player
    return {"api": _WRITER, "provider": _WRITER, "model": model, "usage": usage, "stopReason": reply.finish}


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ---- OpenEnv


def training_trace(rollout: Rollout, origin: Origin) -> dict[str, Any] | None:
    """An episode as OpenEnv's `TrainingTrace`: the tokens of each turn, and a mask that leaves out the prompt.

    Returns:
        The trace as plain data. None for an episode whose tokens are not known, such as that of a scripted player.
    """
    steps, prompt_format = rollout.episode.steps, PROMPT_FORMATS.get(rollout.prompt_format)
    if not all(step.completion.prompt_ids for step in steps):
        return None
    prompts = prompts_of(rollout.episode, prompt_format) if prompt_format else [[] for _ in steps]
    advantages: Sequence[float | None] = rollout.step_advantages or [None] * len(steps)
    turns = []
    for number, (step, prompt, advantage) in enumerate(zip(steps, prompts, advantages, strict=True)):
        reply = step.completion
        turns.append(
            {
                "node_id": f"{episode_id(rollout, origin)}-{number}",
                "prompt_token_ids": list(reply.prompt_ids),
                "completion_token_ids": list(reply.token_ids),
                "per_token_logps": [min(0.0, log_prob) for log_prob in reply.log_probs],  # rounding may put one above
                "loss_mask": [0] * len(reply.prompt_ids) + [1] * len(reply.token_ids),
                "request": {"messages": prompt},
                "response": {"role": "assistant", "content": valid_text(reply.text), "finish_reason": reply.finish},
                "metadata": {"reward": step.reward, "action": step.action, "status": step.status, "advantage": advantage},
            }
        )
    return {"schema_version": _OPENENV_VERSION, "turns": turns}


# ---- a sample of a data set


@dataclass(kw_only=True)
class TraceSample:
    """Some episodes of those that pass by: the ones whose ids have the smallest hashes, whatever the order."""

    size: int
    """How many to keep."""
    kept: list[tuple[str, Rollout, Origin]] = field(default_factory=list)
    """(hash, episode, origin)"""

    def add(self, origin: Origin, rollouts: Sequence[Rollout]) -> None:
        """Looks at further episodes; those without a step have nothing to show."""
        keyed = [(_digest(rollout, origin), rollout, origin) for rollout in rollouts if rollout.episode.steps]
        self.kept = heapq.nsmallest(self.size, [*self.kept, *keyed], key=lambda item: item[0])

    def write(self, folder: Path) -> tuple[int, int]:
        """Writes the traces of the episodes kept. Returns how many there are for Pi, and for OpenEnv."""
        written = 0
        for _, rollout, origin in self.kept:
            name = episode_id(rollout, origin)
            _write(folder / PI / f"{name}.jsonl", pi_session(rollout, origin))
            if trace := training_trace(rollout, origin):
                _write(folder / OPENENV / f"{name}.json", json.dumps(trace) + "\n")
                written += 1
        return len(self.kept), written


def _digest(rollout: Rollout, origin: Origin) -> str:
    return hashlib.sha256(str(episode_id(rollout, origin)).encode()).hexdigest()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
