"""SFT before rewards (behaviour cloning, ours): on the moves of a scripted player, or on the replies of a data set."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError

from msgrpo_hub.agent.policy import Prompt, ScriptedPolicy, format_of
from msgrpo_hub.agent.prompt_formats import Message, PromptFormat, find_format
from msgrpo_hub.downloads.client import first_line, hub_errors
from msgrpo_hub.downloads.names import exists, is_folder, located, split_revision
from msgrpo_hub.episode import Completion, Episode, Group, Step
from msgrpo_hub.errors import UserError, shown
from msgrpo_hub.games import Game, stream
from msgrpo_hub.games.board import cells_text, neighbour
from msgrpo_hub.games.game import has_scene
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.pocket.thoughts import local_view, thought
from msgrpo_hub.storage.shards import read_table, shards
from msgrpo_hub.storage.tables import prompts_of, read_rollouts
from msgrpo_hub.training.config import TrainConfig

log = logging.getLogger(__name__)

# ---- a teacher


@dataclass
class Teacher:
    """A policy that replies like the model, with the move of a scripted player.

    The model generates only if its thoughts are used. Without thoughts, and if its reply is truncated or unparsed, the reply is
    the move alone. Each target is tokenised as a whole: one token may hold the end of the thoughts and the start of the action.
    """

    model: LanguageModel
    player: ScriptedPolicy
    thoughts: Callable[[Game, Any], str] | None = None
    """(game, state) → the teacher's own thoughts; None means the model's."""

    def __post_init__(self) -> None:
        self.prompt_format = wanted = format_of(self.model)
        asks = wanted.name != "action-only" and type(wanted).thought is not PromptFormat.thought
        has_thoughts = getattr(wanted, "parts", None) != () or getattr(wanted, "as_json", False)
        self.generates = not self.thoughts and asks and has_thoughts
        self.caching = self.model.caching if self.generates else nullcontext
        self.end = end_token(self.model)

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        moves = self.player.complete(prompts, rngs)
        if self.generates:
            own = self.model.complete(prompts, rngs)
        else:
            own = [Completion(text="", finish="length", prompt_ids=ids) for ids in self.model.encode(prompts)]
        return [self._reply(prompt, reply, move.text) for prompt, reply, move in zip(prompts, own, moves, strict=True)]

    def _reply(self, prompt: Prompt, own: Completion, move: str) -> Completion:
        whole = own.finish == "stop"
        text = with_move(own.text, move, prompt.prompt_format, prompt.game.actions) if whole else move
        if self.thoughts:
            text = f"<think>{self.thoughts(prompt.game, prompt.state)}</think>{move}"
        end = own.token_ids[-1] if whole else self.end
        ids = (*self.model.tokenizer(text, add_special_tokens=False)["input_ids"], end)
        if not whole and len(ids) > self.model.max_new_tokens:
            most = f"at most max_new_tokens = {self.model.max_new_tokens}: raise --max-new-tokens, in another output folder"
            raise UserError(f"the teacher's reply {text!r} has {len(ids)} tokens with its end, expected {most}")
        return replace(own, text=text, finish="stop", token_ids=ids, log_probs=(0.0,) * len(ids), entropies=())


def end_token(model: LanguageModel) -> int:
    """The token that ends a reply which the model did not write."""
    usual = model.engine.end_ids & {model.tokenizer.eos_token_id}
    return min(model.encoder.turn_end or usual or model.engine.end_ids)


def with_move(text: str, move: str, prompt_format: PromptFormat, actions: Sequence[str]) -> str:
    """A reply with the action of another reply, `move`; or the whole of `move` if the action cannot be replaced."""
    own, wanted = prompt_format.parse(text, actions), prompt_format.parse(move, actions)
    if own is None or wanted is None:
        return move
    begin = text.casefold().rfind(own.casefold())
    replaced = text[:begin] + wanted + text[begin + len(own) :]
    return replaced if prompt_format.parse(replaced, actions) == wanted else move


def careful_thought(game: Game, state: Any, *, cells: bool = True) -> str:
    """The thought of `pocket`, with "opponent" for every cell that the opponent's head can enter this turn.

    With `cells`, each direction is followed by the cell that it leads to: a pretrained model finds a cell in the lists of the
    observation sooner than in the grid.

    >>> from msgrpo_hub.games import make_game
    >>> lake = make_game("FrozenLake-NotSlippery-v1")
    >>> careful_thought(lake, lake.initial_state(np.random.default_rng(3)))
    'Left (0, -1) wall Down (1, 0) ice Right (0, 1) ice Up (-1, 0) wall'
    """
    assert has_scene(game)
    scene, seen = game.scene(state), local_view(game, state)
    to = {action: neighbour(scene.player, action) for action in game.actions}
    seen |= {a: "opponent" for a in game.actions if to[a] in scene.contested and seen[a] not in ("wall", "body")}
    return thought(game, state, {a: f"{cells_text([to[a]])} {what}" if cells else what for a, what in seen.items()})


# ---- a data set

_BUILDERS = {".json": "json", ".jsonl": "json", ".parquet": "parquet"}
"""Suffix of a local data file → its builder in `datasets`."""


class ReplyData:
    """The replies of the data set `config.sft`, in the order in which the taught updates share out its epochs."""

    def __init__(self, config: TrainConfig, model: LanguageModel) -> None:
        self.config, self.model, chats = config, model, [*read_chats(config.sft)]
        ids = model.tokenizer([reply for _, reply in chats], add_special_tokens=False)["input_ids"] if chats else []
        no_game, end, self.replies = cast(Any, None), end_token(model), list[tuple[Prompt, str, tuple[int, ...]]]()
        for (messages, text), tokens in zip(chats, ids, strict=True):
            if len(tokens) < config.max_new_tokens:
                contents = tuple((message["role"], message["content"]) for message in messages)
                self.replies.append((Prompt(contents, "", no_game, no_game), text, (*tokens, end)))
        left_out, size = len(chats) - len(self.replies), len(self.replies)
        order = [stream(config.seed, "sft", epoch).permutation(size) for epoch in range(config.sft_epochs)]
        self.order: list[int] = np.concatenate(order).tolist()
        about = f"sft = {config.sft!r}: {size} replies, and {left_out} of more than {config.max_new_tokens} tokens"
        if len(self.order) < config.taught:
            remedy = "lower --taught, or raise --sft-epochs or --max-new-tokens"
            raise UserError(f"{about}: expected at least one for each of taught = {config.taught} updates; {remedy}")
        log.info("%s left out; %d per update", about, round(len(self.order) / config.taught))

    def of_update(self, index: int) -> list[Group]:
        """The share of a taught update: each reply as an episode of one step."""
        first, last = (number * len(self.order) // self.config.taught for number in (index - 1, index))
        groups, limit = [], self.model.context_limit or math.inf
        for number in self.order[first:last]:
            prompt, text, ids = self.replies[number]
            [prompt_ids] = self.model.encoder.encode([prompt])
            if (length := len(prompt_ids) + len(ids)) > limit:
                raise UserError(f"sft = {self.config.sft!r}: {length} tokens of a prompt and reply, expected at most {limit}")
            completion = Completion(text=text, prompt_ids=prompt_ids, token_ids=ids, log_probs=(0.0,) * len(ids))
            step = Step(observation=prompt.user, completion=completion, action=None, status="ok", legal=True, reward=0.0)
            named: dict[str, Any] = {"game_id": self.config.sft, "seed": number}
            episode = Episode(**named, member=0, steps=(step,), terminated=True, truncated=False, success=True)
            groups.append(Group(**named, episodes=(episode,)))
        return groups


def read_chats(source: str) -> Iterator[tuple[Sequence[Message], str]]:
    """The replies of a data set's split `train`, with their prompts: of rollouts those with an action and an advantage above 0.

    Of other data, every message of the assistant. Raises `UserError` for unreadable data and other columns.
    """
    path = Path(located(source))
    pieces = [pair for pair in shards(path) if pair[0].name.startswith("train-")] if is_folder(path) else []
    tables = ((read_table(heads, "default"), read_table(steps, "steps")) for heads, steps in pieces)
    for rollout in (rollout for pair in tables for rollout in read_rollouts(*pair)):
        prompts = prompts_of(rollout.episode, find_format(rollout.prompt_format))
        for step, prompt, advantage in zip(rollout.episode.steps, prompts, rollout.step_advantages or (), strict=True):
            if step.action is not None and advantage > 0:
                yield prompt, step.completion.text
    for number, row in enumerate(() if pieces else _rows(source, path)):
        if "reply" in row and "advantage" in row and (row["action"] is None or not (row["advantage"] or 0) > 0):
            continue
        try:
            reply: Any = [{"role": "assistant", "content": row["reply"]}] if "reply" in row else row.get("completion")
            first = 1 if "messages" in row else len(row["prompt"])
            messages = row["messages"] if "messages" in row else [*row["prompt"], *reply]
            if not first or not all(isinstance(message["role"] + message["content"], str) for message in messages):
                raise TypeError
        except (KeyError, TypeError) as error:
            expected = "`messages`, or `prompt` and `completion`, as lists of role and content"
            raise UserError(f"sft = {source!r}: row {number} is {shown(row)}: expected {expected}") from error
        for place in range(first, len(messages)):
            if messages[place]["role"] == "assistant":
                yield messages[:place], messages[place]["content"]


def _rows(source: str, path: Path) -> Any:
    """The rows of the split `train`; of a data set of rollouts on the Hub, its steps."""
    try:
        from datasets import get_dataset_config_names, load_dataset
        from datasets.exceptions import DatasetsError
    except ImportError as error:
        raise UserError(f"sft = {source!r} needs `datasets`, which is missing: run `pip install 'msgrpo-hub[trl]'`") from error
    name, revision = split_revision(source, None)
    with hub_errors(name):
        try:
            if exists(path) and not is_folder(path):
                return load_dataset(_BUILDERS[path.suffix], data_files=str(path), split="train")
            steps = "steps" if "steps" in get_dataset_config_names(name, revision=revision) else None
            return load_dataset(name, steps, split="train", revision=revision)
        except (DatasetsError, FileNotFoundError, KeyError, ValueError) as error:
            expected = "a Hub id, a folder or a file (.parquet, .jsonl) with a split `train`"
            raise UserError(f"sft = {source!r} cannot be read ({first_line(error)}): expected {expected}") from error


def data_commit(source: str) -> str:
    """The commit of a data set on the Hub, or the SHA-256 hash of local data files."""
    path = Path(located(source))
    if exists(path):
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.suffix in _BUILDERS)
        return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()
    name, revision = split_revision(source, None)
    with hub_errors(name):
        try:
            return str(HfApi().dataset_info(name, revision=revision).sha)
        except HFValidationError as error:
            raise UserError(f"sft = {source!r}: expected a data set on the Hub as USER/NAME, or a folder or file here") from error
