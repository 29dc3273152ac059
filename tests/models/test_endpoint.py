"""A model plays over HTTP as it plays in this process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from msgrpo_hub.episode import Episode
from msgrpo_hub.games import Game
from msgrpo_hub.players import PlayerSettings, make_player
from msgrpo_hub.rollout import play_episodes
from tests.models.endpoint_players import EPISODE_KEYS, LAKE, SNAKE, WithoutHTTP, ask_once, first_prompts, model, player
from tests.models.openai_server import (
    OpenAIServer,
    at_first,
    reset,
    send,
)


@pytest.mark.lowest
@pytest.mark.parametrize("game", [SNAKE, LAKE], ids=lambda game: str(game.id))
def test_a_model_plays_over_http_as_in_this_process(game: Game) -> None:
    """Records are equal field by field: text, order, seeds, token counts, actions, rewards."""
    with OpenAIServer(model(delay=0.0005)) as server:
        over_http = play_episodes(game, player(server), EPISODE_KEYS)
    assert over_http == play_episodes(game, WithoutHTTP(), EPISODE_KEYS)
    assert {step.status for episode in over_http for step in episode.steps} == {"ok", "unreadable"}


@pytest.mark.lowest
def test_a_request_carries_the_prompt_the_settings_and_its_own_seed() -> None:
    prompts, rngs = first_prompts(SNAKE, 4)
    with OpenAIServer(model()) as server:
        player(server, "org/some-model@v1", concurrency=1).complete(prompts, rngs)
    bodies = [asked.body for asked in server.asked]
    assert [body["messages"] for body in bodies] == [prompt.messages for prompt in prompts]
    settings = {"model": "org/some-model@v1", "temperature": 0.5, "max_tokens": 32}
    assert all(body | settings == body for body in bodies)
    seeds = [body["seed"] for body in bodies]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_further_settings_are_sent_with_every_request() -> None:
    extra = {"top_k": 20, "top_p": 0.9, "chat_template_kwargs": {"enable_thinking": False}}
    with OpenAIServer(model()) as server:
        policy = make_player(f"endpoint:{server.url}#m", PlayerSettings(**extra))
        policy.complete(*first_prompts(SNAKE, 2))
        make_player(f"endpoint:{server.url}#m").complete(*first_prompts(SNAKE, 1))
    *bodies, plain = [asked.body for asked in server.asked]
    assert [body | extra == body for body in bodies] == [True, True]
    assert not plain.keys() & extra.keys()


def test_concurrent_requests_reach_the_limit_and_do_not_exceed_it() -> None:
    with OpenAIServer(model(delay=0.004)) as server:
        player(server, concurrency=3).complete(*first_prompts(SNAKE, 24))
    assert server.most_at_once == 3


def test_no_prompts_send_no_request() -> None:
    with OpenAIServer(model()) as server:
        assert player(server).complete([], []) == []
    assert server.asked == []


def test_players_of_one_process_share_nothing() -> None:
    """Two servers with different models and different faults, played at the same time from two threads."""

    def play(job: tuple[OpenAIServer, str]) -> list[Episode]:
        return play_episodes(SNAKE, player(job[0], job[1]), EPISODE_KEYS)

    server_a, server_b = OpenAIServer(model("a"), at_first(reset)), OpenAIServer(model("b", 0.0002), at_first(send(429)))
    with server_a as a, server_b as b, ThreadPoolExecutor(2) as pool:
        of_a, of_b = pool.map(play, [(a, "model-a"), (b, "model-b")])
    assert of_a == play_episodes(SNAKE, WithoutHTTP("model-a", salt="a"), EPISODE_KEYS)
    assert of_b == play_episodes(SNAKE, WithoutHTTP("model-b", salt="b"), EPISODE_KEYS)
    assert of_a != of_b
    assert [{asked.body["model"] for asked in server.asked} for server in (a, b)] == [{"model-a"}, {"model-b"}]
    together = sorted([(asked.at, "a") for asked in a.asked] + [(asked.at, "b") for asked in b.asked])
    assert len({together[i][1] + together[i + 1][1] for i in range(len(together) - 1)} & {"ab", "ba"}) == 2


def test_two_models_of_one_server_give_different_replies() -> None:
    with OpenAIServer(model()) as server:
        policies = [player(server, name) for name in ("one", "two")]
        replies = [ask_once(policy) for policy in [*policies, *policies]]
    assert replies[:2] == replies[2:]
    assert replies[0] != replies[1]
