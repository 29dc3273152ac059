"""The machine of a run: processes, memory, and the record of sources, versions and numeric settings."""

from __future__ import annotations

import logging
import os
import platform
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from accelerate.utils import (
    FullyShardedDataParallelPlugin,
    InitProcessGroupKwargs,
    compare_versions,
    disable_fsdp_ram_efficient_loading,
    gather_object,
    get_int_from_env,
    parse_flag_from_env,
)
from peft import PeftModel
from torch import nn
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from msgrpo_hub import __version__
from msgrpo_hub.agent.policy import format_of
from msgrpo_hub.downloads.fetching import list_files, resolve
from msgrpo_hub.downloads.names import exists, located, split_revision
from msgrpo_hub.errors import UserError
from msgrpo_hub.fields import Count, misfit
from msgrpo_hub.games import Game
from msgrpo_hub.models.attention import base_of
from msgrpo_hub.models.devices import SMALL_MODEL, check_device, free_cores, free_memory, gpu
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.models.log_probs import CHUNK_BYTES
from msgrpo_hub.models.token_tree import common_prefix
from msgrpo_hub.models.weights import COPIED, large_layers
from msgrpo_hub.players.sample_play import longest_prompts
from msgrpo_hub.storage.files import read_json, write_json
from msgrpo_hub.training.batch import LARGEST
from msgrpo_hub.training.config import TrainConfig
from msgrpo_hub.training.sft import data_commit

TO_MEET = timedelta(minutes=2)
"""How long a process waits for the others at the start."""
GAPS = 1.6
"""Memory of a backward pass on a CPU, as a multiple of its tensors: the allocator leaves gaps between tensors of many sizes."""
ROOM = 2**29
"""Bytes of activations of a pack on a CPU, for which `token_budget` plans; on a CUDA GPU an eighth of its memory."""
PROGRAM = 0.45e9
"""Bytes of Python, torch and the other libraries in a process on the CPU, measured before a model is loaded."""

LAUNCHED = ["WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"]
"""Variables that launchers set to the number of processes."""

_COMMITS = {"model": "base_commit", "init_adapter": "init_adapter_commit", "chat_template": "chat_template_hash"}
_COMMITS["sft"] = "sft_commit"
"""Field of a source → its commit or hash in the record."""

log = logging.getLogger(__name__)

# ---- processes


def make_accelerator(device: str, report_to: str, folder: Path) -> Accelerator:
    """Joins the processes of a launcher, if any. Raises `UserError` if device or tracker cannot be used, or one is missing."""
    check_device(device)
    if report_to not in ("none", "all", *(tracker.value for tracker in get_available_trackers())):
        raise UserError(f"report_to = {report_to!r} cannot be used, it is not installed: install it or take 'none'")
    processes = int(get_int_from_env(LAUNCHED, 1))
    if sharding() and "RANK" not in os.environ:
        raise UserError("FSDP shards a base over processes: expected `accelerate launch`, or torchrun")
    on_cpu = device == "cpu" or (device == "auto" and gpu() in ("", "mps"))
    try:
        accelerator = Accelerator(
            cpu=processes > 1 and on_cpu,
            log_with=None if report_to == "none" else report_to,
            project_dir=str(folder),
            kwargs_handlers=[InitProcessGroupKwargs(timeout=TO_MEET)],
        )
        if accelerator.num_processes > 1:
            accelerator.wait_for_everyone()  # some backends connect at their first operation
            # later the others wait while the first process evaluates, downloads or plays on vLLM servers
            _set_pg_timeout(timedelta(days=1))
    except RuntimeError as error:  # errors of torch.distributed are subclasses
        if processes == 1:
            raise
        why = f"the {processes} processes did not meet within {TO_MEET.seconds} s ({str(error).splitlines()[0][:200]})"
        raise UserError(f"{why}: start all of them again, with one torchrun command on each node") from error
    return accelerator


def sharding() -> FullyShardedDataParallelPlugin | None:
    """The settings of FSDP2 from the environment, which `accelerate launch` sets; None without FSDP.

    Each decoder layer is a shard if the settings do not say it. Only the base is sharded: every process has the whole adapter.
    Raises `UserError` for version 1 of FSDP, which cannot leave an adapter out.
    """
    if not parse_flag_from_env("ACCELERATE_USE_FSDP"):
        return None
    if compare_versions("accelerate", "<", "1.14"):  # earlier ones shard adapters too, and tied embeddings twice
        raise UserError(f"FSDP with accelerate {version('accelerate')}: expected 1.14 or newer, run `pip install -U accelerate`")
    disable_fsdp_ram_efficient_loading()  # which cannot leave an adapter out either
    plugin = FullyShardedDataParallelPlugin()
    if plugin.fsdp_version != 2:
        raise UserError("FSDP of version 1 cannot be used: expected fsdp_version: 2 in the configuration, or FSDP_VERSION=2")
    plugin.auto_wrap_policy = plugin.auto_wrap_policy or transformer_auto_wrap_policy
    return plugin


@contextmanager
def agreed(accelerator: Accelerator) -> Iterator[None]:
    """Ends all processes if one of them raises a `UserError` inside; only the first that failed prints it."""
    own = None
    try:
        yield
    except UserError as error:
        own = error
    failed = [own is not None]
    if accelerator.num_processes > 1:
        failed = gather_object(failed)
    if own and failed.index(True) == accelerator.process_index:
        raise own
    if any(failed):
        raise SystemExit(2)


# ---- memory


def body_layers(model: PreTrainedModel | PeftModel) -> list[nn.Linear]:
    """The frozen linear layers, without the output layer."""
    base = base_of(model)
    found = [m for m in base.modules() if isinstance(m, nn.Linear) and not m.weight.requires_grad]
    return [m for m in found if m is not base.get_output_embeddings()]


def token_budget(config: TrainConfig, model: PreTrainedModel | PeftModel, device: str = "") -> int:
    """The tokens of a pack: the number of the run, or as many as the layers' inputs and outputs allow, from 256 to 2048."""
    if config.token_budget:
        return config.token_budget
    on_gpu = (device or model.device.type) == "cuda" and torch.cuda.is_available()
    room = torch.cuda.mem_get_info()[1] / 8 if on_gpu else ROOM
    of_token = model.dtype.itemsize * sum(layer.in_features + layer.out_features for layer in body_layers(model))
    return int(min(2048, max(256, room / max(of_token, 1))))


def memory_needed(
    agent: LanguageModel, games: Collection[Game], config: TrainConfig, device: str = "", shards: int = 0, *, samples: bool = True
) -> dict[str, float]:
    """Estimates the bytes of each part of an update. Sampling and training take turns, so only the larger one counts.

    Of shapes without weights, `device` is the type of the device that they are for, and `shards` the number of processes over
    which FSDP divides the base; 0 is without FSDP. Without `samples`, other processes sample.
    """
    model, base = agent.model, base_of(agent.model)
    text, size, cpu = base.config.get_text_config(), model.dtype.itemsize, (device or model.device.type) == "cpu"
    tested = 200 if config.test_episodes == "auto" else config.test_episodes
    episodes = max(config.groups * config.group_size, tested, config.eval_episodes * bool(config.eval_every))
    horizon = max(game.horizon for game in games)
    prompts: Sequence[tuple[int, ...]] = agent.encode(longest_prompts(games, format_of(agent)))
    prefix = common_prefix(min(prompts), max(prompts))
    tail = max(map(len, prompts)) - prefix + agent.max_new_tokens  # tokens of a sequence after the shared prefix
    linear, heads = body_layers(model), getattr(text, "num_attention_heads", 0)
    head = text.to_dict().get("head_dim") or text.hidden_size // max(heads, 1)

    # 1) sampling: merged weights and oneDNN's copies; for each reply its keys and values in buffers half as large
    # again (`RowLayer`), its logits and their softmax, and four activations of the widest layer for each of its tokens
    rows = min(episodes, agent.max_rows)
    kept = 2 * text.num_hidden_layers * (text.to_dict().get("num_key_value_heads") or heads) * head * size
    of_row = 1.5 * tail * kept + 2 * text.vocab_size * size + 4 * tail * max((m.out_features for m in linear), default=0) * size
    merged = sum(m.weight.nbytes for m in linear) if model.dtype.itemsize == 4 else 0
    copied = min(COPIED, sum(layer.weight.nbytes for layer in large_layers(base)))
    sampling = merged + copied + rows * of_row

    # 2) training: the inputs and outputs of the layers, attention scores in the largest trees (of the prefix two copies), and
    # four copies of a chunk's logits, since the softmax and both gradients have their shape
    budget = token_budget(config, model, device)
    tokens = max(tail, min(budget, config.groups * config.selected_per_group * horizon * tail))
    inside = float((prefix + tokens) * sum(m.in_features + m.out_features for m in linear) * size)
    inside += text.num_hidden_layers * heads * (tokens * (2 * prefix + min(tokens, LARGEST * tail)) + prefix**2) * size
    if config.gradient_checkpointing:
        inside = inside / text.num_hidden_layers + text.num_hidden_layers * (prefix + tokens) * text.hidden_size * size
    logits = 4 * min(CHUNK_BYTES, tokens * agent.max_new_tokens / tail * text.vocab_size * 4)
    parameters = list(model.parameters())
    here = [p.to_local() if isinstance(p, DTensor) else p for p in parameters]  # of shards only this process's
    weights = float(sum(own.nbytes for p, own in zip(parameters, here, strict=True) if not p.requires_grad))
    if config.load_in_4bit and model.device.type == "meta":  # 4 bits, and a scale in float32 for every 64 weights
        weights -= sum(layer.weight.numel() for layer in linear) * (size - 4.5 / 8)
    if shards:  # FSDP gathers a layer while it computes the one before
        weights *= 1 / shards + 2 / text.num_hidden_layers
    training = (inside + logits) * (GAPS if cpu else 1)
    sampling *= samples and not isinstance(model, FSDPModule)
    needed, name = max((sampling, f"sampling {rows} replies"), (training, f"training on {prefix + tokens} tokens"))
    return {
        "program": PROGRAM if cpu else 0.0,
        "weights": weights,
        "adapter and optimiser": 4 * sum(p.nbytes for p in parameters if p.requires_grad),  # weight, gradient, two moments
        name: needed,
    }


def check_memory(agent: LanguageModel, games: Collection[Game], config: TrainConfig) -> None:
    """Logs the memory that an update needs. Raises `UserError` if the CPU's memory is too small (a full GPU raises its own)."""
    device = agent.model.device.type
    free = free_memory(device) + psutil.Process().memory_info().rss * (device == "cpu")  # the estimate counts loaded weights too
    needed = memory_needed(agent, games, config)
    total = sum(needed.values())
    line = f"training needs about {memory_text(needed)}, and {free / 1e9:.1f} GB are free"
    if device == "cpu" and total > free:
        remedy = "lower --token-budget and --max-rows, or take --gradient-checkpointing, --dtype bfloat16 or a smaller model"
        raise UserError(f"{line}: {remedy}")
    if total >= 1e9:
        log.warning(line)


def memory_text(needed: Mapping[str, float]) -> str:
    """The memory in all, and of each part."""
    parts = ", ".join(f"{size / 1e9:.1f} {name}" for name, size in needed.items() if size)
    return f"{sum(needed.values()) / 1e9:.1f} GB of memory ({parts})"


# ---- provenance.json


def read_provenance(path: Path) -> dict[str, Any]:
    """The record of a run; empty for a new run. Raises `UserError` if it is damaged."""
    if not path.exists():
        return {}
    expected = "the record that the run wrote; restore it, or name another --output-dir"
    values = read_json(path, expected)
    began, sources = values.get("rounding", {}), [values.get(name, "") for name in {*_COMMITS.values()} - {"base_commit"}]
    fits = isinstance(began, dict) and not misfit(began.get("threads", 1), Count)
    if not fits or not all(isinstance(source, str) for source in (values.get("base_commit"), *sources)):
        raise UserError(f"{str(path)!r} is damaged: expected {expected}")
    return values


def pin_sources(config: TrainConfig, began: Mapping[str, Any]) -> tuple[TrainConfig, dict[str, str]]:
    """Pins base, initial adapter and SFT data of a run to commits; a run that resumes keeps the commits of its record, `began`.

    Returns the configuration with pinned names, and for the record the commits and the hash of the chat template; of a folder,
    the hash of its content. Raises `UserError` if a source is missing, of the wrong kind, or changed since the run started.
    """
    sources = resolve(config.model)
    check_base(config.model, is_adapter=bool(sources.adapter))
    found = dict.fromkeys(_COMMITS, ("", "")) | {"model": (sources.base, sources.base_commit)}
    if config.init_adapter:
        name, revision = split_revision(config.init_adapter, None)
        found["init_adapter"] = located(name), list_files(located(name), revision).content
    if (template := Path(config.chat_template)).is_file():
        found["chat_template"] = config.chat_template, sha256(template.read_bytes()).hexdigest()
    if config.sft:
        found["sft"] = split_revision(config.sft, None)[0], data_commit(config.sft)
    names, record = dict[str, Any](), {}
    for field, (source, now) in found.items():
        before = began.get(_COMMITS[field]) or now
        if source and not exists(located(source)):
            names[field], now = f"{source}@{before}", before
        elif before != now:
            given = getattr(config, field)
            raise UserError(f"{field} = {given!r} has changed since the run began: put it back, or name another --output-dir")
        record[_COMMITS[field]] = now
    return replace(config, **names), record


def check_base(model: str, *, is_adapter: bool) -> None:
    """Raises `UserError` if the model to train is an adapter."""
    if is_adapter:
        remedy = f"expected a base model; to train an adapter further, give its base, and --init-adapter {model}"
        raise UserError(f"model = {model!r} is a LoRA adapter: {remedy}")


def choose_threads(wanted: int, began: Mapping[str, Any], parameters: int) -> None:
    """Sets the CPU threads of torch: the wanted number, else the run's own, else one for a tiny model and else the free cores."""
    threads = wanted or began.get("rounding", {}).get("threads") or (1 if parameters < SMALL_MODEL else None)
    if not threads and "OMP_NUM_THREADS" not in os.environ:
        most, threads = torch.get_num_threads(), free_cores()
        log.warning("computing on %d of %d threads, by the cores that are free; --threads N decides otherwise", threads, most)
    if threads:
        torch.set_num_threads(threads)


def record(path: Path, sources: Mapping[str, str], device: str, engine: str, settings: Mapping[str, Any], accept: bool) -> None:
    """Writes the record of a run, or compares a resumed one. Raises `UserError` if its rounding changes, unless `accept`."""
    versions = {name: version(name) for name in ("torch", "transformers", "peft")}
    now = {"threads": torch.get_num_threads(), **settings, "device": device, "engine": engine, **versions}
    if not path.exists():
        all_versions = {"msgrpo_hub": __version__, "Python": platform.python_version(), **versions}
        machine = {"device": device, "hardware": hardware(device), "engine": engine, "versions": all_versions}
        write_json(path, {**sources, **machine, "rounding": now}, sort_keys=False)
        return
    values = read_provenance(path)
    began = values.get("rounding", {})
    changed = {name: [began[name], value] for name, value in now.items() if began.get(name, value) != value}
    if not changed:
        return
    if not accept:
        name, (before, after) = next(iter(changed.items()))
        why = "because the adapter would differ from the adapter of an uninterrupted run; accept that with --accept-rounding"
        raise UserError(f"the run started with {name} = {before!r} and would continue with {after!r}: expected the same, {why}")
    values["resumed_otherwise"] = [*values.get("resumed_otherwise", []), changed]
    write_json(path, {**values, "rounding": {**began, **now}}, sort_keys=False)


def hardware(device: str) -> str:
    """The name of the GPU if the device is one with a name, else of the processor, in plain characters."""
    info = Path("/proc/cpuinfo")  # `platform` knows only the architecture
    found = re.search(r"model name\s*: (.+)", info.read_text(encoding="utf-8", errors="replace") if info.exists() else "")
    name = found[1] if found else platform.processor() or platform.machine()
    if device in ("cuda", "xpu"):
        name = torch.get_device_module(device).get_device_name()
    return " ".join(re.sub(r"[^A-Za-z0-9 .,()@+-]", " ", name).split())
