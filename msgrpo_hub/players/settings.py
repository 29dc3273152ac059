"""The settings of models as players, shared by evaluation, play and the Space. Loads no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgrpo_hub.agent.prompt_formats import PromptFormat, find_format
from msgrpo_hub.downloads.inspection import Scalar, check_switches
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import Range
from msgrpo_hub.models.load_options import LoadOptions, ReplyLength, Temperature, TopK, TopP

Mode = Literal["generate", "score"]
"""`generate`: the reply is sampled (greedy at temperature 0); `score`: the legal action of highest log-probability."""


_OWN_FIELDS = {
    *("model", "messages", "stream", "n", "seed"),
    *("temperature", "max_tokens", "max_completion_tokens", "top_k", "top_p"),
}
"""Fields of a request that `extra_body` cannot change: the identity would state other settings than the run used."""


@dataclass(frozen=True, kw_only=True)
class PlayerSettings(LoadOptions):
    """How models play. Scripted players ignore these settings."""

    mode: Mode = "generate"
    """How a model plays: `generate` samples a reply, `score` takes the legal action of highest log-probability."""
    temperature: Temperature = 0.5
    """Sampling temperature; 0 is greedy."""
    max_new_tokens: ReplyLength = 256
    """Largest length of a reply, in tokens."""
    chat_template: str = ""
    """File with a Jinja chat template; if empty, the adapter's own, else the base's."""
    prompt_format: str = ""
    """The prompt format, built-in or module:object; if empty, the adapter's own, else the suite's or think-action."""
    chat_template_kwargs: dict[str, Scalar] = field(default_factory=dict)
    """Variables of the chat template as JSON, such as {"enable_thinking": false}; an adapter has its own."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Further fields of each request to a server as JSON, such as {"reasoning_effort": "low"}; others ignore them."""
    top_k: TopK = 0
    """Sample from this many of the most likely tokens; 0 is all."""
    top_p: TopP = 1.0
    """Sample from the most likely tokens that together have this probability; 1 is all."""
    concurrency: Annotated[int, Range(1, 1000)] = 8
    """Requests to a server at the same time, at most as many as episodes in a batch; replies do not depend on it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_switches(self.chat_template_kwargs, "in chat_template_kwargs")
        if own := _OWN_FIELDS & self.extra_body.keys():
            raise UserError(f"extra_body has {min(own)!r}, which msgrpo sets: expected other fields, or the flag")
        try:
            json.dumps(self.extra_body, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"extra_body cannot be sent ({error}): expected plain JSON") from error

    @property
    def chosen_format(self) -> PromptFormat | None:
        """The prompt format that the user chose, if any. Raises `UserError` if it cannot be used."""
        return find_format(self.prompt_format, may_import=True) if self.prompt_format else None
