"""`msgrpo train --dry-run`: what a run would do and need, from the configuration of its base, without weights."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelerate.utils import get_int_from_env

from msgrpo_hub.agent.policy import format_of
from msgrpo_hub.downloads.fetching import list_files
from msgrpo_hub.downloads.names import located, split_revision
from msgrpo_hub.games import make_game
from msgrpo_hub.models.devices import choose_device, free_memory, gpu
from msgrpo_hub.models.token_tree import common_prefix
from msgrpo_hub.players.sample_play import longest_prompts
from msgrpo_hub.training import machine
from msgrpo_hub.training.adapter import load_agent
from msgrpo_hub.training.config import TrainConfig, fixed_fields, parse_games
from msgrpo_hub.training.run import check_sharded, servers_of
from msgrpo_hub.training.run_folder import RunFolder


def dry_run(config: TrainConfig, output_dir: Path, acting: str = "engine", *, resume: bool = False) -> dict[str, Any]:
    """What `train` would run with these arguments, and the memory it needs. Writes nothing; servers get no request.

    The base's settings and tokenizer are downloaded, its weights are not. The processes of a launcher and the settings of FSDP
    count. The device may be one that this machine lacks; `memory_free` is then None.
    Returns plain data; `memory` is in bytes by part, for each process.
    Raises `UserError` for what `train` refuses before it loads weights.
    """
    servers = servers_of(config, acting)
    sharded, processes = machine.sharding() is not None, get_int_from_env(machine.LAUNCHED, 1)
    if sharded:
        check_sharded(config, acting)
    folder = RunFolder(output_dir)
    if folder.path.exists():
        folder.check(fixed_fields(config), resume)
    name, revision = split_revision(config.model, None)
    listing = list_files(located(name), revision)
    machine.check_base(config.model, is_adapter=listing.is_adapter)
    weights = sum(listing.sizes[file] for file in listing.weights())
    agent, games = load_agent(config, None), {name: make_game(name) for name in parse_games(config.game)}
    trained = sum(p.numel() for p in agent.model.parameters() if p.requires_grad)
    parameters = agent.model.num_parameters() - trained
    is_here = config.device in ("auto", "cpu", gpu())
    device = choose_device(config.device, parameters) if is_here else config.device
    samples = not servers or bool(config.eval_every or config.test_episodes)
    memory = machine.memory_needed(agent, games.values(), config, device, processes * sharded, samples=samples)
    prompts = agent.encode(longest_prompts(games.values(), format_of(agent)))
    return {
        "model": name,
        "commit": listing.commit,
        "weights_bytes": weights,
        "parameters": parameters,
        "trained_parameters": trained,
        "dtype": str(agent.model.dtype).removeprefix("torch."),
        "games": {name: game.horizon for name, game in games.items()},
        "longest_prompt": max(map(len, prompts)),
        "shared_prefix": common_prefix(min(prompts), max(prompts)),
        "context": agent.context_limit,
        "episodes": config.episodes(config.updates),
        "updates_done": folder.updates() if folder.path.exists() else 0,
        "acting": [server.url for server in servers] or "engine",
        "device": device,
        "processes": processes,
        "sharded": sharded,
        "memory": memory,
        "memory_free": free_memory(device) if is_here else None,
        "config": asdict(config),
    }


def plan_text(plan: dict[str, Any]) -> str:
    """The lines of a dry run."""
    config, free, fits = plan["config"], plan["memory_free"], "this machine has no such device"
    at = f" at {plan['commit'][:12]}" if plan["commit"] else ""
    form = "4 bits (NF4)" if config["load_in_4bit"] else plan["dtype"]
    games = ", ".join(f"{name} (at most {horizon} turns)" for name, horizon in plan["games"].items())
    context = f"; the context is {plan['context']}" if plan["context"] else ""
    where = f"{plan['processes']} processes on {plan['device']}" if plan["processes"] > 1 else plan["device"]
    sampled = "this engine" if plan["acting"] == "engine" else ", ".join(plan["acting"])
    taught = f", the first {config['taught']} by SFT" if config["taught"] else ""
    each = " in each process" if plan["processes"] > 1 else ""
    if free is not None:
        fits = "it fits" if sum(plan["memory"].values()) <= free else "it does not fit; take 4 bits, a smaller base or FSDP"
        fits = f"{free / 1e9:.1f} GB are free here: {fits}"
    rows = {
        "base": f"{plan['model']}{at}, {plan['parameters'] / 1e6:,.0f} M parameters, {plan['weights_bytes'] / 1e9:.1f} GB",
        "adapter": f"{plan['trained_parameters'] / 1e6:,.1f} M parameters in float32 on a base in {form}",
        "games": games,
        "tokens": f"prompts of up to {plan['longest_prompt']}, {plan['shared_prefix']} of them shared; "
        f"replies of up to {config['max_new_tokens']}{context}",
        "updates": f"{config['updates']} of {config['groups']} groups × {config['group_size']} episodes, "
        f"{config['selected_per_group']} selected of each{taught}: {plan['episodes']:,} episodes",
        "runs": f"{plan['runs']}, from update {plan['updates_done']}",
        "computes": f"{where}{', the base sharded by FSDP' if plan['sharded'] else ''}; sampling by {sampled}",
        "memory": f"{machine.memory_text(plan['memory'])}{each}; {fits}",
    }
    return "\n".join(f"{name:9}{text}" for name, text in rows.items()) + "\nNothing was trained: --dry-run"
