"""The engine shares work between samples; here it meets plain forwards, `generate`, and a sampler that shares nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from msgrpo_hub.agent.prompt import Prompt
from msgrpo_hub.errors import UserError
from msgrpo_hub.models.engine import Engine
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.sampling import Sample, draw_tokens
from msgrpo_hub.training.batch import Row, pack
from msgrpo_hub.training.log_probs import token_log_probs

Ids = tuple[int, ...]
END = frozenset(range(250, 300))
"""Many end tokens, so that random models end their replies at many lengths."""
LIMIT = 10
TOLERANCE = 1e-5
"""Of a log-probability in float32 at temperature 1; a temperature divides the logits and with them their rounding."""


def some_prompts(seed: int = 0) -> list[Ids]:
    """Eight prompts of unequal length with a common beginning; four of them are distinct."""
    rng = np.random.default_rng(seed)
    head = tuple(rng.integers(0, 250, 6).tolist())
    distinct = [head + tuple(rng.integers(0, 250, length).tolist()) for length in (3, 9, 5, 1)]
    return [distinct[i] for i in (0, 1, 0, 2, 0, 3, 1, 0)]


def generators(count: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng((seed, i)) for i in range(count)]


def sampled(engine: Engine, prompts: Sequence[Ids], temperature: float = 0.3, limit: int = LIMIT) -> list[Sample]:
    """At a low temperature, so that samples of one prompt part ways late and rows of the cache are really shared."""
    return engine.sample(prompts, generators(len(prompts)), temperature, limit)


def plain_scores(model: torch.nn.Module, sample: Sample, temperature: float) -> Tensor:
    """log p of all tokens at each position of a reply, from one forward pass of prompt + reply."""
    with torch.no_grad():
        logits = model(torch.tensor([[*sample.prompt_ids, *sample.token_ids]])).logits
    return torch.log_softmax(logits[0, len(sample.prompt_ids) - 1 : -1].double() / (temperature or 1.0), -1)


def naive_reply(
    model: torch.nn.Module, prompt: Ids, rng: np.random.Generator, temperature: float, end: frozenset[int]
) -> list[int]:
    """One reply by a full forward pass for each token; a token is the inverse of the cumulative distribution."""
    tokens: list[int] = []
    while len(tokens) < LIMIT and not end & set(tokens):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, -1]
        cumulative = torch.softmax(logits / temperature, -1).double().numpy().cumsum()
        tokens.append(int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")))
    return tokens


# ---- against plain computations, for every family


@pytest.mark.parametrize("temperature", [1.0, 0.3, 0.0])
def test_log_probs_and_entropies_are_those_of_a_plain_forward(family: LanguageModel, temperature: float) -> None:
    for sample in sampled(Engine(family.model, END), some_prompts(), temperature):
        scores = plain_scores(family.model, sample, temperature)
        expected = scores.gather(1, torch.tensor(sample.token_ids)[:, None])[:, 0]
        assert sample.log_probs == pytest.approx(expected.tolist(), abs=TOLERANCE / (temperature or 1))
        assert sample.entropies == pytest.approx((-(scores.exp() * scores).sum(-1)).tolist(), abs=1e-4)


@pytest.mark.lowest
def test_log_probs_are_those_of_eager_attention_too(family: LanguageModel) -> None:
    eager = copy.deepcopy(family.model)
    eager.set_attn_implementation("eager")
    for sample in sampled(Engine(family.model, END), some_prompts(), 1.0):
        expected = plain_scores(eager, sample, 1.0).gather(1, torch.tensor(sample.token_ids)[:, None])[:, 0]
        assert sample.log_probs == pytest.approx(expected.tolist(), abs=TOLERANCE)


def test_greedy_is_generate(family: LanguageModel) -> None:
    prompts = some_prompts()
    for sample in sampled(Engine(family.model, END), prompts, temperature=0.0):
        ids = torch.tensor([sample.prompt_ids])
        options = {"do_sample": False, "max_new_tokens": LIMIT, "eos_token_id": sorted(END), "pad_token_id": 0}
        output = family.model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        assert sample.token_ids == output[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_tokens_are_those_of_sampling_one_prompt_at_a_time(family: LanguageModel, temperature: float) -> None:
    prompts = some_prompts()
    samples = sampled(Engine(family.model, END), prompts, temperature)
    naive = [
        naive_reply(family.model, prompt, rng, temperature, END)
        for prompt, rng in zip(prompts, generators(len(prompts)), strict=True)
    ]
    assert [sample.token_ids for sample in samples] == naive
    assert [sample.prompt_ids for sample in samples] == prompts


@pytest.mark.lowest
def test_training_sees_the_log_probs_that_acting_recorded(family: LanguageModel, prompts: list[Prompt]) -> None:
    replies = family.complete(prompts, generators(len(prompts)))
    distinct = {reply.prompt_ids + reply.token_ids: reply for reply in replies}
    (packed,) = pack([Row(distinct[key], 0.0, 0.0, 1.0) for key in sorted(distinct)], 10_000)
    with torch.no_grad():
        log_probs = token_log_probs(family.model, packed, family.temperature)
    assert log_probs.tolist() == pytest.approx(packed.old_log_probs.tolist(), abs=TOLERANCE)


# ---- architectures that need more than the attention interface offers


def refused_or_plain(folder: Path, prompts: list[Prompt]) -> bool:
    """Whether acting and training either agree with a plain forward, or tell the user that they do not serve this model."""
    try:
        agent = LanguageModel.from_pretrained(str(folder), max_new_tokens=4)
        replies = agent.complete(prompts[:4], generators(4))
    except UserError:
        return True
    (packed,) = pack([Row(reply, 0.0, 0.0, 1.0) for reply in sorted(replies, key=lambda reply: reply.prompt_ids)], 10_000)
    trained = token_log_probs(agent.model, packed, 1.0).tolist()
    samples = [Sample(reply.prompt_ids, list(reply.token_ids)) for reply in replies]
    plain = [plain_scores(agent.model, sample, 1.0)[range(len(sample.token_ids)), sample.token_ids] for sample in samples]
    acted = [pytest.approx(scores.tolist(), abs=TOLERANCE) for scores in plain] == [reply.log_probs for reply in replies]
    return acted and sorted(trained) == pytest.approx(sorted(torch.cat(plain).tolist()), abs=TOLERANCE)


@pytest.mark.parametrize("model_type", ["gemma2", "gemma3_text", "mistral", "phi3", "qwen2"])
def test_a_sliding_window_shorter_than_the_prompt_is_kept_or_refused(
    make_folder: Callable[..., Path], prompts: list[Prompt], model_type: str
) -> None:
    """Gemma 3 has windows of 512 tokens: fewer than a Snake prompt and its reply take."""
    options = {"use_sliding_window": True, "max_window_layers": 1} if model_type == "qwen2" else {}
    assert refused_or_plain(make_folder(model_type, sliding_window=6, **options), prompts)


@pytest.mark.parametrize(
    ("model_type", "options"),
    [
        ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}),  # attention sinks
        ("stablelm", {}),  # chooses its attention by class
        ("nemotron", {}),
        ("bloom", {"n_head": 4}),  # ALiBi, no attention interface
        ("mamba", {}),  # a state instead of keys and values
        ("minimax", {"num_local_experts": 2, "head_dim": 8}),  # a cache of its own
        ("qwen3_next", {"num_experts": 2, "num_experts_per_tok": 2, "head_dim": 8}),  # some layers with a state
    ],
)
def test_a_model_whose_attention_the_engine_cannot_do_is_refused(
    make_folder: Callable[..., Path], prompts: list[Prompt], model_type: str, options: dict[str, object]
) -> None:
    assert refused_or_plain(make_folder(model_type, **options), prompts)


# ---- what is shared changes nothing


@pytest.fixture(scope="module")
def model(make_folder: Callable[..., Path]) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(make_folder("qwen2")).eval()


def assert_same(ours: Sequence[Sample], theirs: Sequence[Sample]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert (a.prompt_ids, a.token_ids, a.finish) == (b.prompt_ids, b.token_ids, b.finish)
        assert a.log_probs == pytest.approx(b.log_probs, abs=3 * TOLERANCE)  # sampled at temperature 0.3
        assert a.entropies == pytest.approx(b.entropies, abs=1e-4)


def test_a_reply_alone_is_the_reply_in_company(model: PreTrainedModel) -> None:
    prompts = some_prompts()
    alone = [Engine(model, END).sample([p], [rng], 0.3, LIMIT)[0] for p, rng in zip(prompts, generators(8), strict=True)]
    assert_same(sampled(Engine(model, END), prompts), alone)


@given(order=st.permutations(range(8)))
@settings(max_examples=5, deadline=None)
def test_the_order_of_the_prompts_changes_no_reply(order: list[int]) -> None:
    prompts, rngs = some_prompts(), generators(8)
    engine = Engine(tiny_model(), END)
    samples = engine.sample([prompts[i] for i in order], [rngs[i] for i in order], 0.3, LIMIT)
    again = engine.sample(prompts, generators(8), 0.3, LIMIT)
    assert_same(samples, [again[i] for i in order])


@pytest.mark.parametrize("max_rows", [1, 3, 5])
def test_max_rows_changes_nothing(model: PreTrainedModel, max_rows: int) -> None:
    prompts = some_prompts()
    assert_same(sampled(Engine(model, END, max_rows=max_rows), prompts), sampled(Engine(model, END), prompts))


def test_replies_do_not_depend_on_earlier_calls(model: PreTrainedModel) -> None:
    used = Engine(model, END)
    for seed in (1, 2, 0, 0):
        samples = sampled(used, some_prompts(seed))
        assert samples == sampled(Engine(model, END), some_prompts(seed))


def test_prompts_without_a_common_beginning_and_prompts_of_one_token(model: PreTrainedModel) -> None:
    prompts = [(5,), (7, 8, 9), (5,), (7,)]
    samples = sampled(Engine(model, END), prompts, 1.0)
    naive = [naive_reply(model, p, rng, 1.0, END) for p, rng in zip(prompts, generators(4), strict=True)]
    assert [sample.token_ids for sample in samples] == naive


# ---- the work that is done


def distinct_contexts(samples: Sequence[Sample]) -> int:
    """The contexts that a next token was drawn from: a prompt with a reply so far, each counted once."""
    return len({(s.prompt_ids, tuple(s.token_ids[:k])) for s in samples for k in range(len(s.token_ids))})


def test_every_distinct_context_is_one_row_and_finished_replies_leave(model: PreTrainedModel) -> None:
    engine = Engine(model, END)
    samples = sampled(engine, some_prompts())
    assert engine.forward_rows == 1 + distinct_contexts(samples)  # 1 for what all prompts share
    assert distinct_contexts(samples) < sum(len(s.token_ids) for s in samples)
    assert len({len(s.token_ids) for s in samples}) > 1


def test_distinct_prompts_are_prefilled_once_and_the_common_beginning_is_kept(model: PreTrainedModel) -> None:
    engine = Engine(model, END)
    sampled(engine, some_prompts(), limit=1)
    assert engine.forward_rows == 1 + 4
    sampled(engine, some_prompts(), limit=1)
    assert engine.forward_rows == 1 + 4 + 4
    sampled(engine, some_prompts(seed=1), limit=1)
    assert engine.forward_rows == 1 + 4 + 4 + 1 + 4


def test_a_reply_ends_by_its_end_token_or_at_the_limit(model: PreTrainedModel) -> None:
    samples = sampled(Engine(model, END), some_prompts(), 1.0)
    for sample in samples:
        assert not END & set(sample.token_ids[:-1])
        assert sample.finish == ("stop" if sample.token_ids[-1] in END else "length")
        assert sample.finish == "stop" or len(sample.token_ids) == LIMIT
    assert {sample.finish for sample in samples} == {"stop", "length"}


def test_an_end_token_at_the_limit_is_a_stop(model: PreTrainedModel) -> None:
    ended = next(sample for sample in sampled(Engine(model, END), some_prompts(), 1.0) if sample.finish == "stop")
    limit = len(ended.token_ids)
    again = sampled(Engine(model, END), some_prompts(), 1.0, limit)
    assert next(s for s in again if s.token_ids == ended.token_ids).finish == "stop"
    assert {s.finish for s in again if s.token_ids[-1] not in END} <= {"length"}


# ---- the kept beginning and changing weights


def tiny_model() -> PeftModel:
    """Two random adapters, `default` (active) and `other`, on a random base."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
    )
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(Qwen2ForCausalLM(config), lora)
    model.add_adapter("other", lora)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def optimizer_step(model: PeftModel, kind: Callable[..., torch.optim.Optimizer]) -> None:
    optimizer = kind([p for p in model.parameters() if p.requires_grad])
    model(torch.tensor([[1, 2, 3]])).logits.square().sum().backward()
    optimizer.step()


def adamw(model: PeftModel) -> None:
    optimizer_step(model, lambda parameters: torch.optim.AdamW(parameters, lr=0.1))


def fused_adamw(model: PeftModel) -> None:
    optimizer_step(model, lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True))


def foreach_adamw(model: PeftModel) -> None:
    optimizer_step(model, lambda parameters: torch.optim.AdamW(parameters, lr=0.1, foreach=True))


def load_state_dict(model: PeftModel) -> None:
    model.load_state_dict({name: value + 0.1 for name, value in model.state_dict().items()})


def assign_state_dict(model: PeftModel) -> None:
    model.load_state_dict({name: value + 0.1 for name, value in model.state_dict().items()}, assign=True)


def replace_base_tensors(model: PeftModel) -> None:
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data + 0.1


def load_adapter_weights(model: PeftModel) -> None:
    set_peft_model_state_dict(model, {name: value + 0.1 for name, value in get_peft_model_state_dict(model).items()})


def change_the_base(model: PeftModel) -> None:
    with torch.no_grad():
        model.get_base_model().model.layers[0].self_attn.v_proj.base_layer.weight.mul_(-1)


def disable_the_adapter(model: PeftModel) -> None:
    model.base_model.disable_adapter_layers()


def switch_adapters(model: PeftModel) -> None:
    model.set_adapter("other")


@pytest.mark.parametrize(
    "change",
    [
        adamw,
        fused_adamw,
        foreach_adamw,
        load_state_dict,
        assign_state_dict,
        replace_base_tensors,
        load_adapter_weights,
        change_the_base,
        disable_the_adapter,
        switch_adapters,
    ],
)
@pytest.mark.parametrize("remembers", [False, True])
def test_what_is_kept_is_dropped_when_the_weights_change(change: Callable[[PeftModel], None], remembers: bool) -> None:
    model = tiny_model()
    engine = Engine(model, END)
    with engine.caching() if remembers else nullcontext():
        before = sampled(engine, some_prompts(), 1.0)
        change(model)
        after = sampled(engine, some_prompts(), 1.0)
        assert after == sampled(Engine(model, END), some_prompts(), 1.0)
        assert after != before
        rows = engine.forward_rows
        sampled(engine, some_prompts(), 1.0)
        assert engine.forward_rows == rows + (0 if remembers else distinct_contexts(after))  # kept again


def test_the_beginning_computed_without_the_adapter_is_not_used_with_it() -> None:
    model = tiny_model()
    engine = Engine(model, END)
    with model.disable_adapter():
        base = sampled(engine, some_prompts(), 1.0)
    adapted = sampled(engine, some_prompts(), 1.0)
    assert adapted == sampled(Engine(model, END), some_prompts(), 1.0) != base


# ---- acting leaves no trace


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_acting_leaves_attention_and_mode_as_they_were(training: bool, implementation: str) -> None:
    model = tiny_model().train(training)
    base = model.get_base_model()
    base.set_attn_implementation(implementation)
    ids = torch.tensor([[1, 2, 3, 4]])
    before = model(ids).logits
    engine = Engine(model, END)
    sampled(engine, some_prompts())
    with pytest.raises(IndexError):
        sampled(engine, [(1, 2, 10**6)])
    assert base.config._attn_implementation == implementation
    assert all(module.training == training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(model(ids).logits, before)
    assert before.requires_grad


def test_acting_is_in_evaluation_mode() -> None:
    model = tiny_model()
    noisy = copy.deepcopy(model).train()
    for module in noisy.modules():
        if isinstance(module, torch.nn.ModuleDict) and "default" in module and isinstance(module["default"], torch.nn.Identity):
            module["default"] = torch.nn.Dropout(0.9)
    ids = torch.tensor([[1, 2, 3, 4]])
    assert not torch.allclose(noisy(ids).logits, model(ids).logits)
    assert_same(sampled(Engine(noisy, END), some_prompts()), sampled(Engine(model, END), some_prompts()))


# ---- drawing


def grid_of_uniforms(count: int) -> list[float]:
    return [(i + 0.5) / count for i in range(count)]


@given(
    logits=st.lists(st.lists(st.floats(-4, 4), min_size=5, max_size=5), min_size=1, max_size=3),
    temperature=st.sampled_from([0.5, 1.0, 1.25]),
)
@settings(max_examples=50, deadline=None)
def test_draws_have_the_frequencies_of_the_distribution(logits: list[list[float]], temperature: float) -> None:
    """Evenly spaced numbers instead of random ones: every count is then off by one at most."""
    n = 1000
    for row, values in enumerate(logits):
        rows = torch.full((n,), row)
        tokens, log_probs, entropies = draw_tokens(torch.tensor(logits), rows, grid_of_uniforms(n), temperature)
        p = np.exp(np.array(values) / temperature)
        p /= p.sum()
        assert np.bincount(tokens.numpy(), minlength=5) == pytest.approx(n * p, abs=1.01)
        assert log_probs.numpy() == pytest.approx(np.log(p)[tokens.numpy()], abs=1e-5)
        assert entropies.numpy() == pytest.approx(np.full(n, -(p * np.log(p)).sum()), abs=1e-5)


def test_the_most_likely_token_at_temperature_zero_is_scored_at_temperature_one() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    tokens, log_probs, entropies = draw_tokens(logits, torch.tensor([1, 0, 1]), [0.99, 0.0, 0.5], 0.0)
    assert tokens.tolist() == [0, 1, 0]
    assert torch.equal(log_probs, torch.log_softmax(logits, -1)[[1, 0, 1], [0, 1, 0]])
    assert entropies[0] == entropies[2] != entropies[1]


def test_an_impossible_token_is_never_drawn() -> None:
    nothing = -torch.inf
    logits = torch.tensor([[nothing, 0.0, nothing, 0.0, nothing]])
    uniforms = [0.0, 0.25, 0.4999999, 0.5, 0.75, 1 - 2**-53]
    tokens, log_probs, entropies = draw_tokens(logits, torch.zeros(6, dtype=torch.long), uniforms, 1.0)
    assert tokens.tolist() == [1, 1, 1, 3, 3, 3]
    assert log_probs.tolist() == entropies.mul(-1).tolist() == pytest.approx([-np.log(2)] * 6)


def test_a_distribution_over_one_hundred_thousand_tokens_is_drawn_to_its_end() -> None:
    """To the last token, and evenly: no share is lost where many small numbers are added up."""
    n = 100_000
    tokens, _, _ = draw_tokens(torch.zeros(1, n), torch.zeros(64, dtype=torch.long), grid_of_uniforms(64), 1.0)
    assert tokens.tolist() == pytest.approx([(i + 0.5) * n / 64 for i in range(64)], abs=1)
