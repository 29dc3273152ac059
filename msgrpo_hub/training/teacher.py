"""A teacher for the first updates of a run (ours): the thoughts of the model, and the moves of a player that knows the game.

The thoughts may also be the teacher's, in the words that `pocket` knows: its own thoughts do not say where the opponent can go,
and moves that follow from what a thought does not say are hardly learned.

Whole replies are taught. Taught the moves alone, at the learning rate of `quickstart`, the built-in base forgets within 20
updates how its thoughts end. A reply becomes tokens as a whole, since a token may hold the end of the thoughts and the start
of the action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from msgrpo_hub.agent.policy import ScriptedPolicy, format_of
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion
from msgrpo_hub.games import Game
from msgrpo_hub.games.board import neighbour
from msgrpo_hub.games.scene import has_scene
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.pocket.pretraining_tasks import local_view, thought

Thoughts = Callable[[Game, Any], str]
"""(game, state) → the thoughts of a reply."""


@dataclass(frozen=True)
class Teacher:
    """Replies as a model does, with the move of a scripted player in place of its own."""

    model: LanguageModel
    player: ScriptedPolicy
    thoughts: Thoughts | None = None
    """The teacher's own; by default they are the model's."""

    @property
    def prompt_format(self) -> PromptFormat:
        return format_of(self.model)

    @cached_property
    def end(self) -> int:
        """The token that ends a reply which the model has not ended itself; elsewhere it is the model's own."""
        eos = self.model.tokenizer.eos_token_id
        return cast(int, min(self.model.engine.end_ids) if eos is None else eos)

    def caching(self) -> AbstractContextManager[None]:
        return self.model.caching()

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:
        own = self.model.complete(prompts, rngs)
        moves = self.player.complete(prompts, rngs)
        return [self._reply(prompt, reply, move.text) for prompt, reply, move in zip(prompts, own, moves, strict=True)]

    def _reply(self, prompt: Prompt, own: Completion, move: str) -> Completion:
        whole = own.finish == "stop" and not self.thoughts  # a reply that was cut has no end to be taught
        if self.thoughts:
            text = f"<think>{self.thoughts(prompt.game, prompt.state)}</think>{move}"
        else:
            text = with_move(own.text, move, prompt.prompt_format, prompt.game.actions) if whole else move
        end = own.token_ids[-1] if whole else self.end
        ids = (*self.model.tokenizer(text, add_special_tokens=False)["input_ids"], end)
        # A log-probability of 0, and no entropies: the teacher is sure, and nothing was drawn.
        return replace(own, text=text, finish="stop", token_ids=ids, log_probs=(0.0,) * len(ids), entropies=())


def with_move(text: str, move: str, prompt_format: PromptFormat, actions: Sequence[str]) -> str:
    """A reply with its action exchanged for that of another reply, which is taken as it is where that cannot be done.

    >>> from msgrpo_hub.agent.prompt_formats import THINK_ACTION
    >>> with_move("<think>Left?</think><action>Left</action>", "<action>Down</action>", THINK_ACTION, ["Left", "Down"])
    '<think>Left?</think><action>Down</action>'
    """
    own, wanted = prompt_format.parse(text, actions), prompt_format.parse(move, actions)
    if own is None or wanted is None:
        return move
    begin = text.casefold().rfind(own.casefold())
    exchanged = text[:begin] + wanted + text[begin + len(own) :]
    return exchanged if prompt_format.parse(exchanged, actions) == wanted else move


def careful_thought(game: Game, state: Any) -> str:
    """The thought of `pocket`, in which a cell that the opponent's head can enter on this turn holds the opponent.

    >>> from msgrpo_hub.games import make_game
    >>> from msgrpo_hub.games.snake import SnakeState
    >>> careful_thought(make_game("Snake-Standard-v1"), SnakeState(((4, 4),), ((3, 5), (2, 5)), (((4, 7),),)))
    'Left free Down free Right opponent Up opponent nearest apple (4, 7) Right 3'
    """
    assert has_scene(game)
    scene, seen = game.scene(state), local_view(game, state)
    reached = [action for action in game.actions if neighbour(scene.player, action) in scene.contested]
    return thought(game, state, seen | {action: "opponent" for action in reached if seen[action] not in ("wall", "body")})


def teacher_of(name: str, model: LanguageModel, thoughts: Thoughts | None = None) -> Teacher:
    """The teacher of a name, one of the scripted players; one with thoughts needs none of the model's."""
    return Teacher(replace(model, max_new_tokens=1) if thoughts else model, ScriptedPolicy(SCRIPTED[name]), thoughts)
