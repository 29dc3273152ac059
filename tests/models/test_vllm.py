"""A vLLM server is refused at once if it was started with other flags, computes something else, or is not vLLM.

The responses are vLLM 0.32.0's; `make test-vllm` starts real servers like these.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from msgrpo_hub.errors import UserError
from msgrpo_hub.models import http_client
from msgrpo_hub.models.http_client import RequestError
from msgrpo_hub.models.vllm_pool import VllmPool
from msgrpo_hub.models.vllm_server import (
    LARGEST_DISTANCE,
    Probes,
    Version,
    VllmServer,
    check_log_probs,
    check_temperature,
    is_other,
    parse_servers,
)
from tests.models.vllm_loopback import MAX_MODEL_LEN, Answered, VllmLoopback, error

START = "started with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve BASE"


@pytest.fixture(scope="module")
def running(tiny_model: Path) -> Iterator[VllmLoopback]:
    with VllmLoopback(str(tiny_model)) as server:
        yield server


@pytest.fixture
def server(running: VllmLoopback) -> VllmLoopback:
    running.before = lambda _path, _body: None
    return running


def answering(server: VllmLoopback, **answers: Answered) -> None:
    def before(path: str, _: object) -> Answered | None:
        return next((answer for end, answer in answers.items() if path.endswith(end)), None)

    server.before = before


def refusal(url: str, patience: float = 3600.0, longest: int = 0) -> str:
    pool = VllmPool([VllmServer(url=url)], Probes(token_ids=[(1, 2)], longest=longest), patience=patience, pause=0.05)
    with pytest.raises(UserError) as refused:
        pool.publish(Version(name="v1", path="/runs/v1", expected=np.zeros(1)))
    pool.close()
    return str(refused.value)


@pytest.mark.parametrize("obstacle", ["offline", "proxy"])
def test_a_server_on_another_machine_is_asked_offline_and_without_a_proxy(
    server: VllmLoopback, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    http_client._client.cache_clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", obstacle == "offline")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    remote = VllmServer(url=server.url.replace("127.0.0.1", "127.1"))  # another machine, as far as the client knows
    remote.check_health()
    assert remote.max_model_len() == MAX_MODEL_LEN
    with pytest.raises(RequestError if obstacle == "proxy" else UserError):
        http_client.request("GET", f"{remote.url}/health", timeout=5)
    http_client._client.cache_clear()


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"models": (404, "<html>Not Found</html>")}, f"is not vLLM: expected one, {START}"),
        ({"models": (200, "<html>Welcome</html>")}, "is not vLLM"),
        ({"models": (200, {"data": [{"id": "x", "owned_by": "me"}]})}, "is not vLLM"),
    ],
)
def test_another_server_is_refused_at_once(server: VllmLoopback, answers: dict[str, Answered], said: str) -> None:
    answering(server, **answers)
    assert said in refusal(server.url)
    assert not server.of("/v1/load_lora_adapter")


def test_a_server_with_too_short_a_context_is_refused_at_once(server: VllmLoopback) -> None:
    assert f"start it with --max-model-len {MAX_MODEL_LEN + 1} or more" in refusal(server.url, longest=MAX_MODEL_LEN + 1)


@pytest.mark.parametrize(
    "answer",
    [
        (404, {"detail": "Not Found"}),
        error(404, "Loading lora v1 failed: No adapter found for /runs/v1", "NotFoundError"),
        error(500, "Call to add_lora method failed: LoRA rank 16 is greater than max_lora_rank 8.", "InternalServerError"),
    ],
    ids=["no-updating", "other-disk", "small-rank"],
)
def test_a_server_that_cannot_load_the_adapter_is_not_waited_for(server: VllmLoopback, answer: Answered) -> None:
    answering(server, load_lora_adapter=answer)
    said = refusal(server.url)
    assert "cannot load the adapter in '/runs/v1' (HTTP" in said
    assert START in said
    assert "that sees this folder under the same path" in said


def test_a_server_that_fails_at_everything_is_about_to_end_and_is_waited_for(server: VllmLoopback) -> None:
    answering(server, load_lora_adapter=(500, "Internal Server Error"), health=(503, ""))
    said = refusal(server.url, patience=0.2)
    assert said.startswith(f"no vLLM server was ready for 0 s ({server.url}: HTTP 503): expected one that answers")


def test_an_address_where_nothing_answers_is_said_at_once_and_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert "no vLLM server was ready" in refusal("http://127.0.0.1:9", patience=0.5)
    assert caplog.messages == ["http://127.0.0.1:9: no response (ConnectError), expected a vLLM server: trying again"]


def test_a_server_that_is_refused_keeps_no_adapter(tiny_model: Path, tmp_path: Path) -> None:
    base, text = AutoModelForCausalLM.from_pretrained(tiny_model), "Left free Down ice"
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(str(tmp_path / "v1"))
    tokens = tuple(AutoTokenizer.from_pretrained(tiny_model)(text, add_special_tokens=False)["input_ids"])
    with VllmLoopback(str(tiny_model)) as server:
        pool = VllmPool([VllmServer(url=server.url)], Probes(token_ids=[tokens]))
        with pytest.raises(UserError, match="computes other log-probabilities"):
            pool.publish(Version(name="v1", path=str(tmp_path / "v1"), expected=np.full(len(tokens) - 1, -50.0)))
        pool.close()
        assert server.loaded == []


RNG = np.random.default_rng(0)
NEW = -RNG.exponential(2, 400)
STEP = RNG.normal(0, 1, 400)
NOISE = RNG.normal(0, 1, 400)


@pytest.mark.parametrize("noise", [1e-5, 0.02], ids=["float32", "bfloat16"])
def test_the_version_before_is_told_from_this_one_if_it_differs_by_more_than_rounding(noise: float) -> None:
    old = NEW - 20 * noise / np.sqrt(400) * STEP  # each token moves by its rounding error
    assert is_other(old + noise * NOISE, NEW, old)
    assert not is_other(NEW + noise * NOISE, NEW, old)
    closer = NEW - noise / 100 * STEP  # closer than rounding: neither is recognised
    assert not is_other(closer + noise * NOISE, NEW, closer)
    assert not is_other(NEW, NEW, NEW)


def test_a_server_with_other_weights_is_refused_by_what_it_answers_with() -> None:
    version = Version(
        name="v2", path="", expected=NEW, others={"the base alone": NEW + STEP, "the version before": NEW - STEP / 9}
    )
    check_log_probs(NEW + 0.01 * NOISE, version, "URL")
    with pytest.raises(UserError, match="'URL' answers with the base alone, not with the version 'v2'"):
        check_log_probs(NEW + STEP, version, "URL")
    with pytest.raises(UserError, match="'URL' answers with the version before"):
        check_log_probs(NEW - STEP / 9, version, "URL")
    with pytest.raises(UserError, match=r"other log-probabilities than the base with the adapter: they are .* nats apart"):
        check_log_probs(NEW + 2 * LARGEST_DISTANCE * NOISE, version, "URL")
    with pytest.raises(UserError, match="they are nan nats apart"):
        check_log_probs(NEW * np.nan, version, "URL")


def test_log_probabilities_without_the_temperature_are_refused() -> None:
    logits = np.array([3.0, 1.0, 0.5, 0.0, -2.0])
    at_one, at_two = (dict(zip("abcde", logits / t - np.log(np.exp(logits / t).sum()), strict=True)) for t in (1.0, 2.0))
    check_temperature(at_one | {"drawn": -9.0}, at_two | {"also drawn": -9.0}, "URL")
    with pytest.raises(UserError, match=r"'URL' reports log-probabilities without the temperature: .* processed_logprobs"):
        check_temperature(at_one, at_one, "URL")


@pytest.mark.parametrize(
    "text",
    [
        *("vllm:", "vllm:localhost:8000", "vllm:http://localhost:8000,", "vllm:http://localhost:8000,http://localhost:8000/v1"),
        *("vllm:http://me:secret@localhost:8000", "vllm:http://localhost:8000?key=secret", "sglang:http://localhost:8000"),
    ],
)
def test_names_of_servers_that_are_none_are_refused_and_secrets_are_not_quoted(text: str) -> None:
    with pytest.raises(UserError, match="expected vllm:URL") as refused:
        parse_servers(text)
    assert "secret" not in str(refused.value)
