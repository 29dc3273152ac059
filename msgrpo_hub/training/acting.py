"""Rollouts of updates: by the engine of this process, by vLLM servers that load the adapter, or by a teacher."""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from peft import PeftModel

from msgrpo_hub.agent.policy import Policy, Prompt, ScriptedPolicy, build_prompt, format_of
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion, Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game, stream
from msgrpo_hub.games.board import neighbour
from msgrpo_hub.games.game import has_scene
from msgrpo_hub.models.context import prompt_lengths
from msgrpo_hub.models.http_client import RequestError, in_threads
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.log_probs import token_batch
from msgrpo_hub.models.scoring import candidate_replies
from msgrpo_hub.models.vllm_pool import VllmPolicy, VllmPool
from msgrpo_hub.models.vllm_server import FloatArray, Probes, Version, VllmServer
from msgrpo_hub.models.weights import without_adapter
from msgrpo_hub.players.sample_play import longest_prompts
from msgrpo_hub.pocket.thoughts import local_view, thought
from msgrpo_hub.rollout import play_episodes

log = logging.getLogger(__name__)

EpisodeKey = tuple[str, int, int]
"""(game id, seed of the initial state, member of its group)."""

LARGEST_RATIO = 2.0
"""Limit of the ratio p / p_old if servers computed p_old: truncated importance sampling (Yao et al. 2025)."""

LARGEST_K3 = 0.05
"""Largest k3 distance between the distributions of servers and trainer, in nats per token; the trainer refuses a larger one."""

_IN_FLIGHT = 256
"""Maximum concurrent episodes per server."""
_ROUNDS = 5
"""How often the episodes of an update may be repeated because servers failed."""


@dataclass
class EngineActor:
    """Plays in this process, all episodes of a game in lockstep."""

    agent: Policy
    name: str = "engine"
    """Its name in the record of the run."""
    is_exact: bool = True
    """Whether p_old is the trainer's own. Otherwise the trainer measures the distance and truncates ratios."""

    def play(self, games: Mapping[str, Game], keys: Sequence[EpisodeKey]) -> list[Episode]:
        episodes: list[Episode] = []
        for name, game in games.items():
            own = [(seed, member) for game_id, seed, member in keys if game_id == name]
            episodes += play_episodes(game, self.agent, own) if own else []
        return episodes


@dataclass
class VllmActor:
    """Plays on vLLM servers, which load every version of the adapter under a new name."""

    agent: LanguageModel
    servers: Sequence[VllmServer]
    folder: Path
    """Folder for versions of the adapter. The servers must see it under the same path."""
    name: str = "vllm"
    is_exact: bool = False
    pause: float = 1.0
    """Pause of the pool between two checks of a server, in seconds."""
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    _versions: int = 0
    _pool: VllmPool | None = None
    _before: FloatArray | None = None

    def play(self, games: Mapping[str, Game], keys: Sequence[EpisodeKey]) -> list[Episode]:
        """Publishes the weights and plays the episodes concurrently; repeats episodes with replies of a failed server.

        Raises `UserError` if no server responds, a server computes with other weights, or servers keep failing.
        """
        if not keys:
            return []
        pool, version = self._publish(games)
        played: list[Episode] = []

        def play(key: EpisodeKey) -> tuple[list[Episode], set[str]]:
            policy = VllmPolicy(self.agent, pool, self.agent.prompt_format)
            with suppress(RequestError):  # no server is ready
                return EngineActor(policy).play(games, [key]), policy.urls
            return [], set()

        for _ in range(_ROUNDS):
            outcomes = in_threads(play, keys, _IN_FLIGHT * len(self.servers))
            sound = pool.check()
            is_kept = [bool(episodes) and urls <= sound for episodes, urls in outcomes]
            played += [episode for (episodes, _), kept in zip(outcomes, is_kept, strict=True) if kept for episode in episodes]
            keys = [key for key, kept in zip(keys, is_kept, strict=True) if not kept]
            if not keys:
                return played
            log.warning("%d episodes are played again, because a vLLM server failed", len(keys))
            pool.publish(version)
        raise UserError(f"the servers failed while episodes were played, {_ROUNDS} times in a row: continue with --resume")

    def close(self) -> None:
        """Unloads the adapters from the servers and deletes the stored versions."""
        if self._pool:
            self._pool.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _publish(self, games: Mapping[str, Game]) -> tuple[VllmPool, Version]:
        """Writes the current weights as a new version and loads it on the servers."""
        if self._pool is None:
            self._pool = VllmPool(self.servers, probes_of(self.agent, games), pause=self.pause)
        self._versions += 1
        path = self.folder.resolve() / f"v{self._versions}"
        model = cast(PeftModel, self.agent.model)
        model.save_pretrained(str(path), save_embedding_layers=False)  # otherwise PEFT asks the Hub for the base
        expected = self._log_probs(self._pool.probes)
        with without_adapter(model):
            others = {"the base alone": self._log_probs(self._pool.probes)}
        if self._before is not None:
            others["the version before"] = self._before
        version = Version(name=f"msgrpo-{self._run}-v{self._versions}", path=str(path), expected=expected, others=others)
        self._pool.publish(version)
        self._before = expected
        for old in self.folder.glob("v*"):
            if old.name != path.name:
                shutil.rmtree(old, ignore_errors=True)
        return self._pool, version

    @torch.no_grad()
    def _log_probs(self, probes: Probes) -> FloatArray:
        """The trainer's log p of the tokens of the probes, without the first of each, at temperature 1."""
        engine, found = self.agent.engine, []
        self.agent.model.eval()
        for ids in probes.token_ids:
            engine.choose(ids, 1)
            batch, _ = token_batch([[(ids[:1], ids[1:])]], prefix=0)
            found.append(engine.log_probs(batch, 1.0).double().cpu().numpy())
        return np.concatenate(found)


Actor = EngineActor | VllmActor
MakeActor = Callable[[LanguageModel], Actor]


def probes_of(agent: LanguageModel, games: Mapping[str, Game]) -> Probes:
    """The first prompts of some games, each with a reply, to compare servers with the trainer."""
    prompts = [
        build_prompt(game, game.initial_state(stream(seed, "initial_state")), format_of(agent))
        for game in [*games.values()][:2]
        for seed in range(2)
    ]
    replies = [candidate_replies(prompt)[0] for prompt in prompts]
    texts = [text + reply for text, reply in zip(agent.render(prompts), replies, strict=True)]
    encoded = agent.tokenizer(texts, add_special_tokens=False)["input_ids"]
    lengths = prompt_lengths(agent.encoder, longest_prompts(games.values(), format_of(agent)))
    longest = max(fixed + replies * agent.max_new_tokens for fixed, replies in lengths)
    return Probes(token_ids=[tuple(ids) for ids in encoded], longest=longest)


# ---- the teacher


@dataclass
class Teacher:
    """A policy for behaviour cloning (ours): it replies like the model, with the move of a scripted player.

    The model generates only if its thoughts are used. Without thoughts, and if its reply is truncated or unparsed, the reply is
    the move. Each target is tokenised as a whole: one token may hold the end of the thoughts and the start of the action.
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
        usual = self.model.engine.end_ids & {self.model.tokenizer.eos_token_id}
        self.end = min(self.model.encoder.turn_end or usual or self.model.engine.end_ids)  # for replies without an end

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
            raise UserError(
                f"the teacher's reply {text!r} has {len(ids)} tokens with its end, expected at most max_new_tokens = "
                f"{self.model.max_new_tokens}: raise --max-new-tokens, in another output folder"
            )
        return replace(own, text=text, finish="stop", token_ids=ids, log_probs=(0.0,) * len(ids), entropies=())


def with_move(text: str, move: str, prompt_format: PromptFormat, actions: Sequence[str]) -> str:
    """A reply with the action of another reply, `move`; or the whole of `move` if the action cannot be replaced."""
    own, wanted = prompt_format.parse(text, actions), prompt_format.parse(move, actions)
    if own is None or wanted is None:
        return move
    begin = text.casefold().rfind(own.casefold())
    replaced = text[:begin] + wanted + text[begin + len(own) :]
    return replaced if prompt_format.parse(replaced, actions) == wanted else move


def careful_thought(game: Game, state: Any) -> str:
    """The thought of `pocket`, with "opponent" for every cell that the opponent's head can enter this turn."""
    assert has_scene(game)
    scene, seen = game.scene(state), local_view(game, state)
    reached = [action for action in game.actions if neighbour(scene.player, action) in scene.contested]
    return thought(game, state, seen | {action: "opponent" for action in reached if seen[action] not in ("wall", "body")})
