"""What an update of the paper's layout needs, from 0.5 to 72 billion parameters: `python -m benchmark.throughput.sizes`.

Each row is a command that `msgrpo train --dry-run` accepts, run on a folder with Qwen2.5's shape and tokenizer and no weights.
The dry run computes the memory. The seconds follow from the rates that were measured at 3B on one H100 (gpu_looks.json), for
episodes as long as those of a random player: a step of sampling reads every weight once, and training passes every selected token
four times through the linear layers (forward twice because of gradient checkpointing, backward to the inputs, reference).
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import Qwen2Config

from benchmark.throughput.cases import qwen
from benchmark.throughput.rows import versions
from benchmark.throughput.tables import RESULTS, record
from msgrpo_hub.agent.policy import ScriptedPolicy
from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.players.registry import SCRIPTED
from msgrpo_hub.rollout import play_episodes
from msgrpo_hub.storage.files import write_json
from msgrpo_hub.training.config import preset
from tests.real.models import real_model

SERVED = "--acting vllm:http://sampler:8000 --eval-every 0 --test-episodes 0"
ROWS: list[tuple[str, str, int]] = [
    *((size, "", 0) for size in ("0.5B", "1.5B", "3B", "7B", "14B")),
    *((size, "--load-in-4bit --max-rows 50", 0) for size in ("7B", "14B", "32B")),
    ("32B", SERVED, 4),
    ("72B", SERVED, 8),
]
"""Size, flags, and the number of processes over which FSDP divides the base; 0 is without FSDP."""
FSDP = "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n"
PRESET = "paper-snake"


def write_shape(size: str, folder: Path, tokenizer: Path) -> None:
    """A model of this size: configuration, a model's tokenizer, and an empty file as large as the weights in bfloat16."""
    shape = qwen(size.lower())
    config = Qwen2Config(**shape, dtype="bfloat16", architectures=["Qwen2ForCausalLM"])
    hidden, keys = shape["hidden_size"], shape["num_key_value_heads"] * shape["hidden_size"] // shape["num_attention_heads"]
    linear = shape["num_hidden_layers"] * hidden * (2 * hidden + 2 * keys + 3 * shape["intermediate_size"])
    embeddings = hidden * shape["vocab_size"] * (1 if shape["tie_word_embeddings"] else 2)
    shutil.copytree(tokenizer, folder, ignore=shutil.ignore_patterns("*.safetensors", "ORIGIN.json"))
    config.save_pretrained(folder)
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(2 * (linear + embeddings))


def arguments(flags: str, folder: Path) -> list[str]:
    """The arguments of `msgrpo` for a row."""
    given = f"--preset {PRESET} --model {folder} {flags} --device cuda --output-dir {folder}-run"
    return shlex.split(f"train {given} --dry-run --json")


def plan(size: str, flags: str, processes: int, folder: Path) -> dict[str, Any]:
    """The dry run of a row's command."""
    launcher = [sys.executable]
    if processes:
        (fsdp := folder.with_suffix(".yaml")).write_text(f"{FSDP}num_processes: {processes}\n", encoding="utf-8")
        launcher += ["-m", "accelerate.commands.accelerate_cli", "launch", "--config_file", str(fsdp)]
    command = [*launcher, "-m", "msgrpo_hub", *arguments(flags, folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{size} {flags}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def main() -> None:
    """Writes results/sizes.json."""
    config, rates = preset(PRESET), record("gpu_looks")["after"]
    game, measured = make_game(config.game), rates["qwen2.5-3b 256 update 3"]
    starts = [(episode_seed(game.id, "train", 0, config.seed), member) for member in range(config.group_size)]
    turns = [len(episode.steps) for episode in play_episodes(game, ScriptedPolicy(SCRIPTED["random"]), starts)]
    selected = config.selected_per_group * sum(turns) / len(turns)  # turns
    bandwidth = measured["bytes_share_acting"] * rates["ceilings"]["bytes_per_second"]
    operations = measured["operations_share_training"] * rates["ceilings"]["operations_per_second"]
    rows = []
    with TemporaryDirectory() as temporary:
        for number, (size, flags, processes) in enumerate(ROWS):
            write_shape(size, folder := Path(temporary) / f"{size}-{number}", real_model("qwen-0.5b"))
            found = plan(size, flags, processes, folder)
            tokens = found["shared_prefix"] + selected * (
                found["longest_prompt"] - found["shared_prefix"] + config.max_new_tokens
            )
            row = {
                "base": size,
                "flags": flags,
                "processes": processes,
                "memory": found["memory"],
                "parameters": found["parameters"],
            }
            if "4bit" not in flags:
                row["seconds_training"] = 4 * 2 * found["parameters"] * tokens / operations / max(processes, 1)
            if not flags:
                row["seconds_acting"] = max(turns) * config.max_new_tokens * found["weights_bytes"] / bandwidth
            rows.append(row)
            print(size, flags, f"{sum(found['memory'].values()) / 1e9:.1f} GB", file=sys.stderr)
    write_json(
        RESULTS / "sizes.json", {"versions": versions(), "mean_turns": sum(turns) / len(turns), "rows": rows}, sort_keys=False
    )


if __name__ == "__main__":
    main()
