"""The policy that compares the log-probabilities of the legal actions' replies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing

from msgrpo_hub.agent.policy import Prompt, build_prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.games import make_game
from msgrpo_hub.games.snake import SnakeState
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.scoring import ScorePolicy
from tests.models.engines import TOLERANCE, plain_log_probs


def act(policy: ScorePolicy, prompts: list[Prompt]) -> list[str]:
    return [reply.text for reply in policy.complete(prompts, [np.random.default_rng(0)] * len(prompts))]


def candidate_ids(agent: LanguageModel, action: str) -> list[int]:
    return list(agent.tokenizer(f"<action>{action}</action>", add_special_tokens=False)["input_ids"])


def corner() -> Prompt:
    """The top left corner of a lake, where only Down and Right are legal, in this order."""
    game = make_game("FrozenLake-NotSlippery-v1")
    prompt = build_prompt(game, game.initial_state(np.random.default_rng(0)))
    assert game.legal_actions(prompt.state) == ("Down", "Right")
    return prompt


def trapped() -> Prompt:
    """A snake in a corner, enclosed by its body."""
    game = make_game("Snake-Solo-v1")
    state = game.initial_state(np.random.default_rng(0))
    assert isinstance(state, SnakeState)
    return build_prompt(game, replace(state, snake=((0, 0), (0, 1), (1, 1), (1, 0)), items=(((3, 3), (4, 4), (5, 5)),)))


def fond_of(folder: Path, action: str | None) -> LanguageModel:
    """A model that ignores its prompt: the tokens of one action's reply have the logit 20, all others 0."""
    agent = LanguageModel.from_pretrained(str(folder))
    model = agent.model
    with torch.no_grad():
        model.model.embed_tokens.weight.fill_(1.0)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.norm.weight.fill_(1.0)  # every hidden state is now a vector of ones
        model.lm_head.weight.zero_()
        model.lm_head.weight[candidate_ids(agent, action) if action else []] = 20.0 / model.config.hidden_size
    return agent


def test_the_choice_is_the_legal_action_of_the_highest_plain_log_prob(family: LanguageModel, prompts: list[Prompt]) -> None:
    replies = ScorePolicy(family).complete(prompts, [np.random.default_rng(0)] * len(prompts))
    for prompt, prompt_ids, reply in zip(prompts, family.encode(prompts), replies, strict=True):
        log_probs = {
            action: plain_log_probs(family.model, prompt_ids, candidate_ids(family, action)).tolist()
            for action in prompt.game.legal_actions(prompt.state)
        }
        best = max(log_probs, key=lambda action: sum(log_probs[action]))
        assert (reply.text, reply.finish, reply.prompt_ids) == (f"<action>{best}</action>", "stop", prompt_ids)
        assert list(reply.token_ids) == candidate_ids(family, best)
        assert reply.log_probs == pytest.approx(log_probs[best], abs=TOLERANCE)


@pytest.mark.parametrize("action", ["Up", "Down"])
def test_all_actions_are_candidates_if_none_is_legal(qwen2_folder: Path, action: str) -> None:
    assert trapped().game.legal_actions(trapped().state) == ()
    assert act(ScorePolicy(fond_of(qwen2_folder, action)), [trapped()]) == [f"<action>{action}</action>"]


def test_a_reply_of_more_tokens_is_less_likely_and_ties_go_to_the_first_action_of_the_game(qwen2_folder: Path) -> None:
    """If every token has the same probability, a score is -log(vocabulary) per token, and no length divides it."""
    agent = fond_of(qwen2_folder, None)
    lengths = {action: len(candidate_ids(agent, action)) for action in ("Left", "Down", "Right", "Up")}
    assert lengths == {"Left": 3, "Down": 6, "Right": 7, "Up": 3}
    assert act(ScorePolicy(agent), [trapped(), corner()]) == ["<action>Left</action>", "<action>Down</action>"]
    (reply,) = ScorePolicy(agent).complete([trapped()], [np.random.default_rng(0)])
    assert sum(reply.log_probs) == pytest.approx(-3 * np.log(agent.model.config.vocab_size), abs=TOLERANCE)


def test_a_reply_is_tokenised_with_nothing_added(qwen2_folder: Path) -> None:
    agent = LanguageModel.from_pretrained(str(qwen2_folder))
    (plain,) = ScorePolicy(agent).complete([corner()], [np.random.default_rng(0)])
    bos = TemplateProcessing(single="<|pad|> $A", special_tokens=[("<|pad|>", agent.tokenizer.pad_token_id)])
    agent.tokenizer.backend_tokenizer.post_processor = bos  # as Llama's
    assert agent.tokenizer("Up")["input_ids"][0] == agent.tokenizer.pad_token_id
    assert ScorePolicy(agent).complete([corner()], [np.random.default_rng(0)]) == [plain]


def test_a_limit_too_short_to_name_an_action_is_refused(qwen2_folder: Path) -> None:
    agent = LanguageModel.from_pretrained(str(qwen2_folder), max_new_tokens=2)
    with pytest.raises(UserError, match="max_new_tokens = 2: expected at least 7"):
        act(ScorePolicy(agent), [corner()])
