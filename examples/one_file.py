"""MS-GRPO in one file: a LoRA adapter for Frozen Lake, by plain transformers and peft. Copy it and change what you like.

    python examples/one_file.py                                                    # the built-in base, minutes on a CPU
    python examples/one_file.py --model Qwen/Qwen2.5-0.5B-Instruct --device cuda

From msgrpo_hub it takes only the game and the prompts. `msgrpo train` computes the same loss and gradient, and adds
speed (shared prefixes and merged rows), resuming, validation, other credits and samplers, several processes and the Hub. The
paper: "Reinforced Language Models for Sequential Decision Making", arXiv 2508.10839.

Shapes: G episodes of a group, S steps, K generated tokens, V tokens of the vocabulary.
"""

import argparse
import time
from dataclasses import dataclass, field
from importlib.resources import files

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from msgrpo_hub.agent.policy import build_prompt
from msgrpo_hub.agent.prompt_formats import THINK_ACTION
from msgrpo_hub.games import episode_seed, make_game, stream


@dataclass
class Settings:
    """The paper's symbols are in brackets. The values suit the built-in base; the paper's are in `msgrpo train --help`."""

    model: str = str(files("msgrpo_hub") / "pocket" / "model")
    game: str = "FrozenLake-NotSlippery-v1"
    device: str = "cpu"
    seed: int = 0
    updates: int = 20
    groups: int = 4  # initial states per update
    group_size: int = 32  # episodes from each [G]
    selected: int = 16  # episodes of a group that the update learns from [G']
    format_penalty: float = 1.0  # for each unparsed reply [-Φ]
    epsilon: float = 0.2  # of the clip [ε]
    beta: float = 0.01  # weight of the KL penalty [β]
    learning_rate: float = 3e-3
    gradient_clip: float = 1.0
    temperature: float = 1.0
    max_new_tokens: int = 32
    batch_size: int = 64  # rows of a forward pass
    test_episodes: int = 50
    output: str = ""  # folder of the adapter


@dataclass
class Step:
    """One turn: the prompt, the reply, the parsed action (None if there is none), and the reward."""

    prompt: list[int]
    reply: list[int]
    action: str | None
    reward: float


@dataclass
class Episode:
    steps: list[Step] = field(default_factory=list)
    success: bool = False


# ---- rollout: game × model → episodes


@torch.no_grad()
def sample(model, tokenizer, prompts, settings, temperature):
    """One reply per prompt, up to and including its end token.

    Args:
        prompts: token ids of each prompt.
        temperature: 0 is greedy.
    """
    model.eval()
    ends = model.generation_config.eos_token_id  # one token, several or None
    ends, replies = {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])}, []
    how = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {"do_sample": False}
    for start in range(0, len(prompts), settings.batch_size):
        batch = prompts[start : start + settings.batch_size]
        longest = max(map(len, batch))
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(batch):  # padded on the left, so that all replies start in one column
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        output = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            max_new_tokens=settings.max_new_tokens,
            pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
            **how,
        )
        for reply in output[:, longest:].tolist():
            end = next((k + 1 for k, token in enumerate(reply) if token in ends), len(reply))
            replies.append(reply[:end])
    return replies


def play(model, tokenizer, game, keys, settings, temperature):
    """Plays one episode per (seed, member), all in lockstep.

    The seed gives the initial state. Seed and member give the game's chance, so the members of a group share only their
    start.
    """
    episodes = [Episode() for _ in keys]
    states = [game.initial_state(stream(seed, "initial_state")) for seed, _ in keys]
    chance = [stream(seed, "dynamics", member) for seed, member in keys]
    live = list(range(len(keys)))
    while live:
        # 1) one prompt per live episode: rules, then the current state, never the history
        texts = [
            tokenizer.apply_chat_template(build_prompt(game, states[j]).messages, add_generation_prompt=True, tokenize=False)
            for j in live
        ]
        prompts = tokenizer(texts, add_special_tokens=False)["input_ids"]

        # 2) one reply per prompt
        replies = sample(model, tokenizer, prompts, settings, temperature)

        # 3) parse the action and step the game; without an action the turn passes
        still_live = []
        for j, prompt, reply in zip(live, prompts, replies, strict=True):
            action = THINK_ACTION.parse(tokenizer.decode(reply, skip_special_tokens=True), game.actions)
            after = game.step(states[j], action, chance[j])
            states[j] = after.state
            episodes[j].steps.append(Step(prompt, reply, action, after.reward))
            episodes[j].success = game.succeeded(after.state)
            if not (after.terminated or after.truncated):
                still_live.append(j)
        live = still_live
    return episodes


# ---- one update: returns → advantages → selection → loss


def composite_return(episode, format_penalty):
    """C = Σ_t (r_t + Φ_t), undiscounted, with Φ = −format_penalty for an unparsed reply."""
    return sum(step.reward - format_penalty * (step.action is None) for step in episode.steps)


def group_advantages(returns):
    """(G,) A_j = (C_j − mean(C)) / (std(C) + 1e-8) over the episodes of one group; all zero if the returns are equal."""
    returns = torch.tensor(returns, dtype=torch.float64)
    centred = returns - returns.mean()
    deviation = centred.square().mean().sqrt()
    return centred / (deviation + 1e-8) if deviation > 1e-8 else torch.zeros_like(centred)


def select(advantages, count, generator):
    """AAW: the indices of `count` episodes without replacement, with p_j = softmax_j(|A_j|)."""
    return torch.multinomial(advantages.abs().softmax(0), count, replacement=False, generator=generator).tolist()


def token_log_probs(model, steps, temperature):
    """(K,) log p of the generated tokens of some steps, one step after the other."""
    rows = [torch.tensor(step.prompt + step.reply) for step in steps]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(model.device)  # on the right: no effect on earlier tokens
    mask = torch.zeros_like(ids)
    for row, tokens in enumerate(rows):
        mask[row, : len(tokens)] = 1
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits.float() / temperature  # (rows, length, V)
    log_p = torch.log_softmax(logits[:, :-1], -1).gather(-1, ids[:, 1:, None])[..., 0]
    first = [len(step.prompt) - 1 for step in steps]  # the position that predicts the first token of the reply
    return torch.cat([log_p[row, f : f + len(step.reply)] for row, (f, step) in enumerate(zip(first, steps, strict=True))])


def policy_loss(log_probs, old, reference, advantages, weights, epsilon, beta):
    """Σ_k n_k · −[ min(w·A, clip(w, 1−ε, 1+ε)·A) − β·KL ], with w = p_θ / p_old and the k3 estimate of KL(p_θ ‖ p_ref).

    Args:
        log_probs: (K,) log p_θ, with gradient.
        old: (K,) log p_old.
        reference: (K,) log p_ref.
        advantages: (K,) A of each token's episode.
        weights: (K,) n, the weight of each token.
    """
    w = torch.exp(log_probs - old)
    surrogate = torch.minimum(w * advantages, w.clamp(1 - epsilon, 1 + epsilon) * advantages)
    difference = reference - log_probs
    kl = torch.exp(difference) - difference - 1
    return (weights * -(surrogate - beta * kl)).sum()


def gradient(model, samples, settings):
    """Adds the gradient of an update, batch by batch. Returns the loss.

    Args:
        samples: (step, advantage of its episode) for every step of the selected episodes.
    """
    total = sum(len(step.reply) for step, _ in samples)  # the loss is a mean over all generated tokens of the update
    samples = sorted(samples, key=lambda sample: len(sample[0].prompt) + len(sample[0].reply))  # little padding
    loss = 0.0
    for start in range(0, len(samples), settings.batch_size):
        batch = samples[start : start + settings.batch_size]
        steps = [step for step, _ in batch]
        advantages = torch.cat([torch.full((len(step.reply),), float(a), device=model.device) for step, a in batch])
        with torch.no_grad(), model.disable_adapter():
            reference = token_log_probs(model, steps, settings.temperature)
        log_probs = token_log_probs(model, steps, settings.temperature)
        old = log_probs.detach()  # one optimiser step per update: p_old is p_θ before the step
        weights = torch.full_like(old, 1 / total)
        part = policy_loss(log_probs, old, reference, advantages, weights, settings.epsilon, settings.beta)
        part.backward()
        loss += part.item()
    return loss


# ---- the run


def success(model, tokenizer, game, settings, temperature):
    """The share of test episodes with success, on boards that training never uses."""
    keys = [(episode_seed(game.id, "test", index), 0) for index in range(settings.test_episodes)]
    episodes = play(model, tokenizer, game, keys, settings, temperature)
    return sum(episode.success for episode in episodes) / len(episodes)


def train(settings):
    """Trains an adapter. Returns the model, its tokenizer and the mean success of each update."""
    # 1) the base with LoRA on all linear layers; without the adapter it is the reference p_ref
    torch.manual_seed(settings.seed)
    game = make_game(settings.game)
    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    base = AutoModelForCausalLM.from_pretrained(settings.model, dtype=torch.float32).to(settings.device)
    given = base.generation_config  # its penalties and truncation go, so that sampling is from p_θ
    base.generation_config = GenerationConfig(eos_token_id=given.eos_token_id, pad_token_id=given.pad_token_id)
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, lora).eval()  # without dropout, so that training has the probabilities of sampling
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=0.0)
    generator = torch.Generator().manual_seed(settings.seed)

    history = []
    for update in range(settings.updates):
        started = time.time()

        # 2) play: G episodes from each of some initial states
        numbers = range(update * settings.groups, (update + 1) * settings.groups)
        seeds = [episode_seed(game.id, "train", number, settings.seed) for number in numbers]
        keys = [(seed, member) for seed in seeds for member in range(settings.group_size)]
        episodes = play(model, tokenizer, game, keys, settings, settings.temperature)
        groups = [episodes[first : first + settings.group_size] for first in range(0, len(episodes), settings.group_size)]

        # 3) returns → advantages → selection; every step of an episode gets the advantage of the episode
        samples = []
        for group in groups:
            advantages = group_advantages([composite_return(episode, settings.format_penalty) for episode in group])
            if advantages.any():  # a group of equal returns teaches nothing
                for j in select(advantages, settings.selected, generator):
                    samples += [(step, advantages[j].item()) for step in group[j].steps]

        # 4) one optimiser step
        optimizer.zero_grad()
        loss = gradient(model, samples, settings) if samples else 0.0
        torch.nn.utils.clip_grad_norm_(parameters, settings.gradient_clip)
        optimizer.step()

        history.append(sum(episode.success for episode in episodes) / len(episodes))
        unparsed = np.mean([step.action is None for episode in episodes for step in episode.steps])
        print(
            f"update {update + 1}: success {history[-1]:.2f}, unparsed replies {unparsed:.2f}, loss {loss:+.4f}, "
            f"{time.time() - started:.0f} s"
        )

    # 5) save the adapter; `msgrpo eval FOLDER` evaluates it
    if settings.output:
        model.save_pretrained(settings.output)
    return model, tokenizer, history


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in vars(Settings()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    settings = Settings(**vars(parser.parse_args()))
    model, tokenizer, _ = train(settings)
    game = make_game(settings.game)
    with model.disable_adapter():
        before = success(model, tokenizer, game, settings, settings.temperature)
    after = success(model, tokenizer, game, settings, settings.temperature)
    print(f"success on {settings.test_episodes} test boards: {before:.2f} before, {after:.2f} after training")


if __name__ == "__main__":
    main()
