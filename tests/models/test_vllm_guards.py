"""What a vLLM server is checked for, in numbers; and how its servers are named."""

from __future__ import annotations

import numpy as np
import pytest

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.vllm_guards import LARGEST_DISTANCE, Version, check_temperature, check_version, is_other
from msgrpo_hub.models.vllm_server import parse_servers

RNG = np.random.default_rng(0)
NEW = -RNG.exponential(2, 400)
STEP = RNG.normal(0, 1, 400)
NOISE = RNG.normal(0, 1, 400)


@pytest.mark.parametrize("noise", [1e-5, 0.02], ids=["float32", "bfloat16"])
def test_the_version_before_is_told_from_this_one_if_it_differs_by_more_than_rounding(noise: float) -> None:
    old = NEW - 20 * noise / np.sqrt(400) * STEP  # each token moves by as much as it is rounded
    assert is_other(old + noise * NOISE, NEW, old)
    assert not is_other(NEW + noise * NOISE, NEW, old)


def test_versions_closer_than_rounding_are_not_told_apart_and_do_no_harm() -> None:
    old = NEW - 1e-6 * STEP
    assert not is_other(old + 1e-3 * NOISE, NEW, old)
    assert not is_other(NEW, NEW, NEW)


def test_a_server_with_other_weights_is_refused_by_what_it_answers_with() -> None:
    version = Version(
        name="v2", path="", expected=NEW, others={"the base alone": NEW + STEP, "the version before": NEW - STEP / 9}
    )
    check_version(NEW + 0.01 * NOISE, version, "URL")
    with pytest.raises(UserError, match="'URL' answers with the base alone, not with the version 'v2'"):
        check_version(NEW + STEP, version, "URL")
    with pytest.raises(UserError, match="'URL' answers with the version before"):
        check_version(NEW - STEP / 9, version, "URL")
    with pytest.raises(UserError, match=r"other log-probabilities than the base with the adapter: they are .* nats apart"):
        check_version(NEW + 2 * LARGEST_DISTANCE * NOISE, version, "URL")
    with pytest.raises(UserError, match="they are nan nats apart"):
        check_version(NEW * np.nan, version, "URL")


def test_log_probabilities_without_the_temperature_are_refused() -> None:
    logits = np.array([3.0, 1.0, 0.5, 0.0, -2.0])
    at_one, at_two = (dict(zip("abcde", logits / t - np.log(np.exp(logits / t).sum()), strict=True)) for t in (1.0, 2.0))
    check_temperature(at_one | {"drawn": -9.0}, at_two | {"also drawn": -9.0}, "URL")
    with pytest.raises(UserError, match=r"'URL' reports log-probabilities without the temperature: .* processed_logprobs"):
        check_temperature(at_one, at_one, "URL")


@pytest.mark.parametrize(
    "text",
    [
        "vllm",
        "vllm:",
        "vllm:localhost:8000",
        "vllm:ftp://localhost",
        "vllm:http://localhost:8000,",
        "vllm:http://localhost:x",
        "vllm:http://localhost:8000,http://localhost:8000/v1",
        "vllm:http://me:secret@localhost:8000",
        "vllm:http://localhost:8000?key=secret",
        "sglang:http://localhost:8000",
    ],
)
def test_names_of_servers_that_are_none_are_refused_and_secrets_are_not_quoted(text: str) -> None:
    with pytest.raises(UserError, match="expected vllm:URL") as refused:
        parse_servers(text)
    assert "secret" not in str(refused.value)
