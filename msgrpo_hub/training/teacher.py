"""A teacher for behaviour cloning in the first updates of a run (ours): replies with the moves of a scripted player.

The thoughts before a move are the model's own or the teacher's. The teacher's use the words of `pocket` and also say where
the opponent can go: a model hardly learns moves that do not follow from the thought.

The targets are whole replies. Trained on the moves alone, at the learning rate of `quickstart`, the built-in base forgets
within 20 updates how its thoughts end. Each reply is tokenised as a whole, since one token may hold the end of the thoughts
and the start of the action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from msgrpo_hub.agent.policy import ScriptedPolicy, format_of
from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.agent.prompt_formats import PromptFormat
from msgrpo_hub.episode import Completion
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import Game
from msgrpo_hub.games.board import neighbour
from msgrpo_hub.games.game import has_scene
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.pocket.pretraining_tasks import local_view, thought

Thoughts = Callable[[Game, Any], str]
"""(game, state) → the thoughts of a reply."""


@dataclass(frozen=True)
class Teacher:
    """A policy that replies like the model, with the move of a scripted player.

    The model generates only if its thoughts are used. In a format without thoughts the reply is the move alone, and so it is
    if the model's reply is truncated or unparsed.
    """

    model: LanguageModel
    player: ScriptedPolicy
    thoughts: Thoughts | None = None
    """The teacher's own thoughts; None means the model's."""

    @property
    def prompt_format(self) -> PromptFormat:
        return format_of(self.model)

    @cached_property
    def generates(self) -> bool:
        """Whether the model's thoughts are used."""
        wanted = self.prompt_format
        asks = wanted.name != "action-only" and type(wanted).thought is not PromptFormat.thought
        return not self.thoughts and asks and getattr(wanted, "parts", None) != ()

    @cached_property
    def end(self) -> int:
        """The end token of a reply that the model has not ended itself: the one that ends a turn in the chat template."""
        usual = self.model.tokenizer.eos_token_id
        return min(self.model.encoder.turn_end or self.model.engine.end_ids & {usual} or self.model.engine.end_ids)

    def caching(self) -> AbstractContextManager[None]:
        return self.model.caching() if self.generates else nullcontext()

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
    """A reply with its action replaced by the action of another reply; if that fails, the other reply.

    >>> from msgrpo_hub.agent.prompt_formats import THINK_ACTION
    >>> with_move("<think>Left?</think><action>Left</action>", "<action>Down</action>", THINK_ACTION, ["Left", "Down"])
    '<think>Left?</think><action>Down</action>'
    """
    own, wanted = prompt_format.parse(text, actions), prompt_format.parse(move, actions)
    if own is None or wanted is None:
        return move
    begin = text.casefold().rfind(own.casefold())
    replaced = text[:begin] + wanted + text[begin + len(own) :]
    return replaced if prompt_format.parse(replaced, actions) == wanted else move


def careful_thought(game: Game, state: Any) -> str:
    """The thought of `pocket`, with "opponent" for every cell that the opponent's head can enter this turn.

    >>> from msgrpo_hub.games import make_game
    >>> from msgrpo_hub.games.snake import SnakeState
    >>> careful_thought(make_game("Snake-Standard-v1"), SnakeState(((4, 4),), ((3, 5), (2, 5)), (((4, 7),),)))
    'Left free Down free Right opponent Up opponent nearest apple (4, 7) Right 3'
    """
    assert has_scene(game)
    scene, seen = game.scene(state), local_view(game, state)
    reached = [action for action in game.actions if neighbour(scene.player, action) in scene.contested]
    return thought(game, state, seen | {action: "opponent" for action in reached if seen[action] not in ("wall", "body")})
