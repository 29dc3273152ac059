"""Servers that were started otherwise than the guide says, or are something else: refused with what to do, not waited for.

The answers are those of vLLM 0.32.0; `make test-vllm` starts real servers like these.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from msgrpo_hub.errors import UserError
from msgrpo_hub.models.vllm_guards import Probes, Version
from msgrpo_hub.models.vllm_pool import VllmPool
from msgrpo_hub.models.vllm_server import VllmServer, parse_servers
from tests.models.vllm_loopback import MAX_MODEL_LEN, Answered, VllmLoopback, error

VERSION = Version(name="v1", path="/runs/v1", expected=np.zeros(1))


@pytest.fixture(scope="module")
def running(tiny_model: Path) -> Iterator[VllmLoopback]:
    with VllmLoopback(str(tiny_model)) as server:
        yield server


@pytest.fixture
def server(running: VllmLoopback) -> VllmLoopback:
    running.before = lambda _path, _body: None
    return running


def answering(server: VllmLoopback, **answers: Answered) -> None:
    """Routes that end so get these answers."""

    def before(path: str, _: object) -> Answered | None:
        return next((answer for end, answer in answers.items() if path.endswith(end)), None)

    server.before = before


def refusal(server: VllmLoopback, longest: int = 0) -> str:
    """What a pool of this server says of it; at once, though it would wait for a lost one for an hour."""
    pool = VllmPool([VllmServer(url=server.url)], Probes(texts=["abc"], token_ids=[(1,)], longest=longest), patience=3600.0)
    with pytest.raises(UserError) as refused:
        pool.publish(VERSION)
    pool.close()
    return str(refused.value)


@pytest.mark.parametrize(
    "answer", [(404, "<html>Not Found</html>"), (200, "<html>Welcome</html>"), (200, {"data": [{"id": "x", "owned_by": "me"}]})]
)
def test_something_else_at_the_address_is_not_waited_for(server: VllmLoopback, answer: Answered) -> None:
    answering(server, models=answer)
    assert refusal(server) == (
        f"the server {server.url!r} is not vLLM: expected one, started with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve "
        "BASE --enable-lora --max-lora-rank R --logprobs-mode processed_logprobs`"
    )


def test_a_router_without_the_tokenizer_is_refused(server: VllmLoopback) -> None:
    answering(server, tokenize=(404, {"detail": "Not Found"}))
    assert "has no /tokenize (HTTP 404: Not Found): expected vLLM itself, not a router" in refusal(server)


def test_a_server_that_takes_too_few_tokens_is_refused_before_the_first_episode(server: VllmLoopback) -> None:
    said = refusal(server, longest=MAX_MODEL_LEN + 1)
    assert f"takes {MAX_MODEL_LEN} tokens of a prompt with its reply, and the longest to expect have {MAX_MODEL_LEN + 1}" in said
    assert f"start it with --max-model-len {MAX_MODEL_LEN + 1} or more" in said
    assert not server.of("/v1/load_lora_adapter")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((404, {"detail": "Not Found"}), "loads no adapters: start it with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve"),
        (
            error(404, "Loading lora v1 failed: No adapter found for /runs/v1", "NotFoundError"),
            "cannot load the adapter in '/runs/v1' (HTTP 404: Loading lora v1 failed: No adapter found for /runs/v1): expected a "
            "server that sees this folder under the same path; choose an --output-dir that it sees",
        ),
        (
            error(500, "Call to add_lora method failed: LoRA rank 16 is greater than max_lora_rank 8.", "InternalServerError"),
            "LoRA rank 16 is greater than max_lora_rank 8.): expected one started with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
        ),
    ],
    ids=["no-updating", "other-disk", "small-rank"],
)
def test_a_server_that_cannot_load_the_adapter_is_not_waited_for(server: VllmLoopback, answer: Answered, said: str) -> None:
    [tokens] = [VllmServer(url=server.url).tokenize("abc")]
    answering(server, load_lora_adapter=answer)
    pool = VllmPool([VllmServer(url=server.url)], Probes(texts=["abc"], token_ids=[tokens]), patience=3600.0)
    with pytest.raises(UserError) as refused:
        pool.publish(VERSION)
    pool.close()
    assert said in str(refused.value)


def test_a_server_that_fails_at_everything_is_about_to_end_and_is_waited_for(server: VllmLoopback) -> None:
    answering(server, load_lora_adapter=(500, "Internal Server Error"), health=(503, ""))
    pool = VllmPool([VllmServer(url=server.url)], Probes(texts=[], token_ids=[]), patience=0.2, pause=0.05)
    with pytest.raises(UserError, match=r"no vLLM server was ready for 0 s \(http://.*: HTTP 500: Internal Server Error\)"):
        pool.publish(VERSION)
    pool.close()


def test_an_error_that_nobody_thought_of_ends_the_run_instead_of_leaving_it_to_wait(server: VllmLoopback) -> None:
    with patch.object(VllmServer, "_read", side_effect=RecursionError("too deep")):
        assert refusal(server) == f"the server {server.url!r} could not be asked (RecursionError: too deep)"


def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(server: VllmLoopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGRPO_ENDPOINT_KEY", "sk-“quoted”")
    said = refusal(server)
    assert said.startswith("MSGRPO_ENDPOINT_KEY holds a character that no key has")
    assert "quoted" not in said


def test_a_name_that_no_machine_can_have_is_refused_when_it_is_read() -> None:
    with pytest.raises(UserError, match="expected vllm:URL"):
        parse_servers("vllm:http://a..b:8000")


def test_an_address_where_nothing_answers_is_said_at_once_and_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    pool = VllmPool([VllmServer(url="http://127.0.0.1:9")], Probes(texts=[], token_ids=[]), patience=0.5, pause=0.05)
    with pytest.raises(UserError, match="no vLLM server was ready"):
        pool.publish(VERSION)
    pool.close()
    said = (
        "http://127.0.0.1:9: no response (ConnectionRefusedError), expected a vLLM server: it is tried again, for 0 s if no other"
    )
    assert caplog.text.count(said) == 1


def test_a_reply_that_was_cut_for_want_of_room_is_refused_with_what_fits(server: VllmLoopback) -> None:
    """vLLM takes a prompt of 3 tokens with 8 to come where 8 fit, and replies with 5."""
    choice = {
        "token_ids": [4] * 5,
        "prompt_token_ids": [1, 2, 3],
        "logprobs": {"token_logprobs": [-1.0] * 5},
        "finish_reason": "length",
    }
    answering(server, completions=(200, {"model": "v1", "choices": [choice]}))
    with pytest.raises(UserError) as refused:
        VllmServer(url=server.url).sample("v1", (1, 2, 3), temperature=1.0, max_new_tokens=8, end_ids=[2])
    assert str(refused.value) == (
        f"the server {server.url!r} ended a reply after 5 of 8 tokens: its prompt has 3; "
        "start it with --max-model-len 11 or more, and continue with --resume"
    )


TEXT = "Left free Down ice"


def an_adapter(tiny_model: Path, folder: Path) -> tuple[PeftModel, Probes]:
    """An adapter that is saved in a folder, and a probe."""
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_model), LoraConfig(r=2, target_modules=["q_proj"]))
    model.save_pretrained(str(folder))
    tokens = tuple(AutoTokenizer.from_pretrained(tiny_model)(TEXT, add_special_tokens=False)["input_ids"])
    return model, Probes(texts=[TEXT], token_ids=[tokens])


def test_a_server_that_is_being_made_ready_while_the_pool_closes_keeps_nothing(tiny_model: Path, tmp_path: Path) -> None:
    with VllmLoopback(str(tiny_model)) as quick, VllmLoopback(str(tiny_model)) as slow:
        loading = threading.Event()

        def load_slowly(path: str, _: object) -> None:
            if path.endswith("load_lora_adapter") and "unload" not in path:
                loading.set()
                time.sleep(0.5)

        slow.before = load_slowly
        model, probes = an_adapter(tiny_model, tmp_path / "v1")
        [tokens] = probes.token_ids
        with torch.no_grad(), model.disable_adapter():  # LoRA is zero at first
            logits = model(torch.tensor([tokens])).logits[0].log_softmax(-1)
        expected = np.array([logits[k, token].item() for k, token in enumerate(tokens[1:])])
        pool = VllmPool([VllmServer(url=each.url) for each in (quick, slow)], probes)
        pool.publish(Version(name="v1", path=str(tmp_path / "v1"), expected=expected))
        assert loading.wait(10)
        pool.close()
        assert (quick.loaded, slow.loaded) == ([], [])


def test_a_server_that_is_refused_keeps_no_adapter(tiny_model: Path, tmp_path: Path) -> None:
    with VllmLoopback(str(tiny_model)) as server:
        _, probes = an_adapter(tiny_model, tmp_path / "v1")
        pool = VllmPool([VllmServer(url=server.url)], probes)
        with pytest.raises(UserError, match="computes other log-probabilities"):
            pool.publish(Version(name="v1", path=str(tmp_path / "v1"), expected=np.full(len(probes.token_ids[0]) - 1, -50.0)))
        pool.close()
        assert server.loaded == []
