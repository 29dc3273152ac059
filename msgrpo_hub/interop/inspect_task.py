"""A suite's task for Inspect (`inspect-ai`): the episodes and the scores of `msgrpo eval`, run and logged by `inspect eval`.

    inspect eval msgrpo_hub/text_game -T game=Snake-Standard-v1 --model openai/gpt-5-mini
    LOCAL_BASE_URL=http://localhost:8000/v1 LOCAL_API_KEY=none inspect eval msgrpo_hub/text_game --model openai-api/local/MODEL

Each sample is a board of the suite. Inspect's epochs are our repeats: epoch 1 is member 0 of the board's seed.
"""

from __future__ import annotations

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ContentReasoning, GenerateConfig, ModelOutput, get_model
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from pydantic import TypeAdapter

from msgrpo_hub.agent.policy import Prompt, build_prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat, find_format
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import unknown
from msgrpo_hub.evaluation.scores import judged
from msgrpo_hub.evaluation.suites import load_suite
from msgrpo_hub.games import Game, make_game, stream
from msgrpo_hub.interop.episodes import play_episode, reported
from msgrpo_hub.players import PlayerSettings

_MESSAGES = TypeAdapter(list[ChatMessage])
_DEFAULTS = PlayerSettings()


@task  # type: ignore[untyped-decorator]
def text_game(game: str = "FrozenLake-NotSlippery-v1", suite: str = "standard") -> Task:
    """A game of a suite (a name, or the path of a TOML file), on its boards. Sampling defaults to that of `msgrpo eval`."""
    chosen = load_suite(suite)
    if game not in chosen.tasks:
        raise unknown("game", game, chosen.tasks)
    rules, asked = make_game(game), find_format(chosen.prompt_format)
    samples = []
    for index, seed in enumerate(chosen.seeds(game)):
        first = build_prompt(rules, rules.initial_state(stream(seed, "initial_state")), asked)
        metadata = {"seed": str(seed)}  # a viewer in JavaScript would round a number
        samples.append(Sample(id=index, input=_MESSAGES.validate_python(first.messages), metadata=metadata))
    return Task(
        dataset=MemoryDataset(samples, name=game),
        solver=play(rules, asked),
        scorer=episode_score(),
        epochs=chosen.repeats,
        config=GenerateConfig(temperature=_DEFAULTS.temperature, max_tokens=_DEFAULTS.max_new_tokens),
        metadata={"game": game, "suite": chosen.name, "split": chosen.split, "prompt_format": asked.name},
    )


@solver  # type: ignore[untyped-decorator]
def play(game: Game, prompt_format: PromptFormat) -> Solver:
    """Plays a sample's episode; the log has the prompts and replies of all turns."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:  # noqa: ARG001
        log: list[ChatMessage] = []

        async def ask(prompt: Prompt, seed: int) -> Completion:
            messages = _MESSAGES.validate_python(prompt.messages)
            state.output = await get_model().generate(messages, config=GenerateConfig(seed=seed))
            log.extend([*(messages[-1:] if log else messages), state.output.message])
            return completion_of(state.output)

        episode = await play_episode(game, ask, int(state.metadata["seed"]), state.epoch - 1, prompt_format)
        state.metadata["score"] = reported(judged(episode)[1])
        state.metadata["actions"] = [step.action for step in episode.steps]
        state.messages, state.completed = log, True
        return state

    return solve


@scorer(metrics={"*": [mean(), stderr()]})  # type: ignore[untyped-decorator]
def episode_score() -> Scorer:
    """The score of an episode, as `msgrpo eval` computes it; Inspect shows the means."""

    async def score(state: TaskState, target: Target) -> Score:  # noqa: ARG001
        return Score(value=state.metadata["score"], answer=", ".join(action or "⊥" for action in state.metadata["actions"]))

    return score


def completion_of(output: ModelOutput) -> Completion:
    """A reply of Inspect as ours, thoughts in front. Raises `RuntimeError` without a reply; Inspect then marks a failure."""
    message, usage = output.message, output.usage
    parts = message.content if isinstance(message.content, list) else []
    thinking = "".join(part.reasoning for part in parts if isinstance(part, ContentReasoning))
    ended = output.stop_reason in ("stop", "max_tokens", "tool_calls")
    if output.error or output.stop_reason == "unknown" or not (message.text or thinking or ended):
        raise RuntimeError(f"no reply ({output.error or output.stop_reason})")
    return Completion(
        text=f"<think>{thinking}</think>{message.text}" if thinking else message.text,
        finish="length" if output.stop_reason == "max_tokens" else "stop",
        usage=(usage.input_tokens, usage.output_tokens) if usage else None,
    )
