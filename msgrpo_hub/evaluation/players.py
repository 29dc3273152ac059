"""Players by name: scripted ones, the built-in base, and any model of the Hub or of this machine."""

from __future__ import annotations

import difflib
from pathlib import Path

from msgrpo_hub.agent.policy import Chooser, Policy, ScriptedPolicy, choose_random, choose_random_legal, choose_random_safe
from msgrpo_hub.errors import unknown
from msgrpo_hub.evaluation.references import choose_greedy, choose_optimal
from msgrpo_hub.games import Game, played
from msgrpo_hub.games.frozen_lake import FrozenLake

SCRIPTED: dict[str, Chooser] = {
    "random": choose_random,
    "random-legal": choose_random_legal,
    "random-safe": choose_random_safe,
    "greedy": choose_greedy,
    "optimal": choose_optimal,
}


def make_player(name: str, *, temperature: float = 1.0, max_new_tokens: int = 256, chat_template: str | None = None) -> Policy:
    """The player of a name.

    Args:
        name: a scripted player, `pocket`, a Hub id or a folder (base or LoRA adapter, `@revision` allowed), or
            `base+adapter`.
        temperature: of a language model; 0 is greedy.
        max_new_tokens: limit of a language model's reply.
        chat_template: file with a Jinja chat template, for a model without one.

    Raises:
        UserError: no such player can be found.
    """
    if name in SCRIPTED:
        return ScriptedPolicy(SCRIPTED[name])
    check_near_miss(name)
    from msgrpo_hub.agent.language_model import LanguageModel  # torch is loaded only for a language model

    base, _, adapter = name.partition("+")
    return LanguageModel.from_pretrained(
        base, adapter or None, chat_template=chat_template, temperature=temperature, max_new_tokens=max_new_tokens
    )


def can_play(name: str, game: Game) -> bool:
    """Whether a player knows a game: only solved games have an optimal player."""
    return name != "optimal" or isinstance(played(game), FrozenLake)


def check_near_miss(name: str) -> None:
    """Refuses a name that is nearly that of a scripted player, before it is looked for on the Hub."""
    names = [*SCRIPTED, "pocket"]
    if name != "pocket" and difflib.get_close_matches(name, names, cutoff=0.8) and not Path(name).exists():
        raise unknown("player", name, names)
