"""Rollouts of updates: by the engine of this process or by vLLM servers that load the adapter."""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from peft import PeftModel
from tqdm import tqdm

from msgrpo_hub.agent.policy import Policy, build_prompt, format_of
from msgrpo_hub.episode import Episode
from msgrpo_hub.errors import UserError
from msgrpo_hub.evaluation.runner import advance
from msgrpo_hub.games import Game, stream
from msgrpo_hub.models.context import prompt_lengths
from msgrpo_hub.models.http_client import RequestError, in_threads, start_threads
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.log_probs import token_batch
from msgrpo_hub.models.scoring import candidate_replies
from msgrpo_hub.models.vllm_pool import VllmPolicy, VllmPool
from msgrpo_hub.models.vllm_server import FloatArray, Probes, Version, VllmServer
from msgrpo_hub.models.weights import without_adapter
from msgrpo_hub.players.sample_play import longest_prompts
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

    def play(self, games: Mapping[str, Game], keys: Sequence[EpisodeKey], bar: tqdm[Any] | None = None) -> list[Episode]:
        episodes: list[Episode] = []
        for name, game in games.items():
            own = [(seed, member) for game_id, seed, member in keys if game_id == name]
            on_turn = None if bar is None else advance(bar, game, len(own))
            episodes += play_episodes(game, self.agent, own, on_turn) if own else []
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
    ended: int = 0
    """The number of episodes that have ended since `start`."""
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    _versions: int = 0
    _pool: VllmPool | None = None
    _probes: Probes | None = None
    _before: FloatArray | None = None

    def start(self, games: Mapping[str, Game], keys: Sequence[EpisodeKey]) -> Future[list[Episode]]:
        """Publishes the weights and starts to play with them in a thread, which uses the tokenizer but not the model.

        The thread, too, raises `UserError` if servers keep failing.
        """
        pool, version = self._publish(games)
        [playing] = start_threads(lambda keys: self._play(pool, version, games, keys), [keys], 1)
        return playing

    def _play(self, pool: VllmPool, version: Version, games: Mapping[str, Game], keys: Sequence[EpisodeKey]) -> list[Episode]:
        """Plays concurrently, again if a server failed."""
        played: list[Episode] = []

        def play(key: EpisodeKey) -> tuple[list[Episode], set[str]]:
            policy = VllmPolicy(self.agent, pool, self.agent.prompt_format)
            with suppress(RequestError):  # no server is ready
                episodes = EngineActor(policy).play(games, [key])
                self.ended += 1
                return episodes, policy.urls
            return [], set()

        for _ in range(_ROUNDS):
            self.ended = len(played)
            outcomes = in_threads(play, keys, _IN_FLIGHT * len(self.servers))
            sound = pool.check()
            is_kept = [bool(episodes) and urls <= sound for episodes, urls in outcomes]
            played += [episode for (episodes, _), kept in zip(outcomes, is_kept, strict=True) if kept for episode in episodes]
            keys = [key for key, kept in zip(keys, is_kept, strict=True) if not kept]
            if not keys:
                return played
            pool.publish(version)
            log.warning("%d episodes are played again, because a vLLM server failed", len(keys))
        raise UserError(f"the servers failed while episodes were played, {_ROUNDS} times in a row: continue with --resume")

    def close(self) -> None:
        """Unloads the adapters from the servers and deletes the stored versions."""
        if self._pool:
            self._pool.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _publish(self, games: Mapping[str, Game]) -> tuple[VllmPool, Version]:
        """Writes the current weights as a new version and loads it on the servers."""
        expected, others = self.expect(games)
        if self._pool is None:
            self._pool = VllmPool(self.servers, cast(Probes, self._probes), pause=self.pause)
        self._versions += 1
        path = self.folder.resolve() / f"v{self._versions}"
        model = cast(PeftModel, self.agent.model)
        model.save_pretrained(str(path), save_embedding_layers=False)  # otherwise PEFT asks the Hub for the base
        version = Version(name=f"msgrpo-{self._run}-v{self._versions}", path=str(path), expected=expected, others=others)
        self._pool.publish(version)
        for old in self.folder.glob("v*"):
            if old.name != path.name:
                shutil.rmtree(old, ignore_errors=True)
        return self._pool, version

    def expect(self, games: Mapping[str, Game]) -> tuple[FloatArray, dict[str, FloatArray]]:
        """The log-probabilities of the probes: by the current weights, and by others that a server could have by mistake."""
        self._probes = self._probes or probes_of(self.agent, games)
        expected = self._log_probs(self._probes)
        with without_adapter(cast(PeftModel, self.agent.model)):
            others = {"the base alone": self._log_probs(self._probes)}
        others |= {} if self._before is None else {"the version before": self._before}
        self._before = expected
        return expected, others

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
