"""A taskset for verifiers (`verifiers.v1`): training boards, or the episodes and scores of `msgrpo eval`.

verifiers finds a taskset as a top-level module, such as `examples/msgrpo_games.py`:

    PYTHONPATH=examples vf-eval msgrpo-games --env.taskset.game Snake-Standard-v1 --model MODEL --client.base-url URL

Every turn is a separate request with its own prompt, through verifiers' interception server, so a trace has one branch a turn.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, cast

import verifiers.v1 as vf
from openai import AsyncOpenAI

from msgrpo_hub.agent.policy import Prompt, build_prompt
from msgrpo_hub.agent.prompt_formats import THINK_ACTION, find_format
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import unknown
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.suites import load_suite
from msgrpo_hub.games import episode_seed, make_game, stream
from msgrpo_hub.interop.episodes import play_episode, reported
from msgrpo_hub.models.endpoint import read_reply
from msgrpo_hub.players import PlayerSettings

__all__ = ["GameEnv", "GameHarness", "GameTaskset"]

_DEFAULTS = PlayerSettings()


class GameData(vf.TaskData):  # type: ignore[misc]
    """One episode."""

    game: str
    prompt_format: str
    seed: int
    member: int | None
    """The seed of the dynamics; None samples one for each rollout."""


class GameTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    """The boards of a game."""

    game: str = "FrozenLake-NotSlippery-v1"
    """A game; with a suite, one of its games."""
    suite: str = ""
    """The name of a suite, or the path of a TOML file, whose boards are played; by default training boards."""
    boards: int = 512
    repeats: int | None = None
    """Tasks per board, with members 0, 1, …, as for `msgrpo eval --repeats`. None: one task, whose rollouts
    have different members, so that a group shares its start and not its dynamics."""


class GameTaskset(vf.Taskset[vf.Task[GameData], GameTasksetConfig]):  # type: ignore[misc]
    """Training boards of a game, or the boards of one task of a suite, in the suite's order."""

    def load(self) -> Iterable[vf.Task[GameData]]:
        game, suite = make_game(self.config.game), load_suite(self.config.suite) if self.config.suite else None
        if suite and game.id not in suite.tasks:
            raise unknown("game", game.id, suite.tasks)
        asked = find_format(suite.prompt_format) if suite else THINK_ACTION
        for seed in suite.seeds(game.id) if suite else [episode_seed(game.id, "train", k) for k in range(self.config.boards)]:
            first = build_prompt(game, game.initial_state(stream(seed, "initial_state")), asked)
            shown = {"name": f"{game.id}#{seed}", "system_prompt": first.system, "prompt": first.user}
            for member in [None] if self.config.repeats is None else range(self.config.repeats):
                data = GameData(**shown, game=game.id, prompt_format=asked.name, seed=seed, member=member)
                yield vf.Task[GameData](data, self.config.task)


class GameHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    """Plays an episode in this process and sends the requests through verifiers, which records them."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,  # noqa: ARG002
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],  # noqa: ARG002
        data: GameData,
    ) -> vf.ProgramResult:
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=5, timeout=None) as client:

            async def ask(prompt: Prompt, seed: int) -> Completion:
                answer = await client.chat.completions.create(
                    model=ctx.model,
                    messages=cast(Any, prompt.messages),
                    seed=seed,
                    temperature=_DEFAULTS.temperature,  # `--sampling.*` overrides these two
                    max_tokens=_DEFAULTS.max_new_tokens,
                )
                return read_reply(answer.model_dump())

            member = random.getrandbits(31) if data.member is None else data.member
            episode = await play_episode(make_game(data.game), ask, data.seed, member, find_format(data.prompt_format))
        score = reported(judged(episode)[1])
        trace.info["msgrpo"] = {"member": member, "actions": [step.action for step in episode.steps], "score": score}
        trace.record_metrics(score)
        trace.record_reward("episode_return", score["reward"])
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class GameEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """One player, which needs no sandbox."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class GameEnv(vf.Env[GameEnvConfig]):  # type: ignore[misc]
    """One player plays one episode."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        await agents.agent.run(task)
