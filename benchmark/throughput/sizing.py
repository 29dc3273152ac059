"""The tables of docs/guide/sizing.md, which `python -m benchmark.throughput.sizing` prints: updates on cards (`cards.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from benchmark.throughput.cards import (
    CARDS,
    GB,
    LIMIT,
    Card,
    fits,
    fitted,
    fitted_activations,
    held,
    measured,
    needed,
    seconds,
    smallest_card,
)
from msgrpo_hub.models.costs import FLOAT32, QWEN
from msgrpo_hub.training.config import TrainConfig, preset
from msgrpo_hub.training.paper import CARD_GB, PRESETS
from msgrpo_hub.training.sizing import memory, update_size


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def fit_table() -> str:
    """Measured and computed, side by side."""
    shares, (rows, operations, bandwidth) = fitted(), measured()
    lines = []
    for row in rows:
        acting = shares.seconds_acting(row.acting_bytes / bandwidth, row.acting_operations / operations)
        training = shares.training * row.training_operations / operations
        pairs = [(row.acting, acting), (row.training, training), (row.memory / GB, held(row) / GB)]
        lines.append([row.label, *(f"{found:.1f} / {computed:.1f}" for found, computed in pairs)])
    return table(["0.5B on two CPU cores", "acting (s), measured / fitted", "training (s)", "peak memory (GB)"], lines)


def shares_text() -> str:
    """The shares in words."""
    shares = fitted()
    return (
        f"Acting takes {shares.acting:.1f} times what reading weights and caches at full bandwidth and then its operations at "
        f"the full matrix rate\nwould take, after {shares.start:.0f} s in which weights are merged and copied. Training takes "
        f"{shares.training:.1f} times what its operations take."
    )


def _configs() -> Mapping[str, TrainConfig]:
    return {name: preset(name) for name in PRESETS}


def memory_table() -> str:
    """Memory of an update of the paper's presets, by part."""
    lines = []
    for name, config in _configs().items():
        for size, shape in QWEN.items():
            parts = memory(config, shape, update_size(config))
            whole = sum(parts.values())
            largest = next(part for part in ("acting", "training") if part in parts)
            cells = [f"{parts[part] / GB:.1f}" for part in ("program", "weights", "adapter", largest)]
            lines.append([f"`{name}`", size, *cells, f"**{whole / GB:.1f}**", f"{smallest_card(config, shape).gigabytes} GB"])
    head = ["preset", "base", "program (GB)", "weights", "adapter, gradient, AdamW", "activations, logits", "in all", "card"]
    return table(head, lines)


def time_table(name: str) -> str:
    """Seconds of an update of a preset by card: at the fitted shares, and the limit."""
    config = _configs()[name]
    size, lines = update_size(config), []
    for base, shape in QWEN.items():
        cells = []
        for card in CARDS:
            found, least = (seconds(config, shape, size, card, shares).all for shares in (fitted(), LIMIT))
            cells.append(f"{found:,.0f} ({least:,.0f})" if fits(needed(config, shape), card.gigabytes) else "–")
        lines.append([base, *cells])
    return table([f"`{name}`", *(f"{card.name}, {card.gigabytes} GB" for card in CARDS)], lines)


_ID, _CHARACTERS, _FIGURES = 4, 3, 16
"""Bytes of a stored token: its id and its text, and of a reply's also log-probability and entropy."""


def million_table(card: Card, episodes: float = 1e6) -> str:
    """What so many episodes an hour of `paper-snake` take, by size of the base."""
    config, lines = preset("paper-snake"), []
    full = replace(config, groups=5)  # 500 episodes at a time on each server
    size, one = update_size(full), update_size(config)
    updates = episodes / one.episodes / 60
    for base, shape in QWEN.items():
        acting = seconds(full, shape, size, card, fitted()).acting / size.episodes
        training = seconds(config, shape, one, card, fitted()).training
        servers, trainers = episodes * acting / 3600, updates * training / 60
        adapter = shape.lora(config.lora_rank) * FLOAT32
        sent = updates / 60 * adapter * servers
        first = _bottleneck(training * updates / 60, sent)
        lines.append([base, f"{servers:,.0f}", f"{trainers:,.1f}", f"{adapter / 1e6:,.0f} MB", f"{sent / GB:,.1f} GB/s", first])
    head = ["base", f"{card.name}s that act", "that train", "an adapter", "adapters to all servers", "with one trainer"]
    return table(head, lines)


def _bottleneck(trainer: float, sent: float, link: float = 12.5e9) -> str:
    """What gives way first with one trainer that sends over one link of 100 Gbit/s, and by how much."""
    shares = {"training": trainer, "sending adapters": sent / link}
    name = max(shares, key=lambda key: shares[key])
    return f"{name}, {shares[name]:,.0f} times too slow" if shares[name] > 1 else "none"


def million_facts(episodes: float = 1e6) -> str:
    """The same for all bases: updates and rollouts."""
    config = preset("paper-snake")
    size = update_size(config)
    prompt, turns, updates = size.rules + size.state, episodes * size.turns, episodes / size.episodes / 60
    stored = turns * ((_ID + _CHARACTERS) * (prompt + size.reply) + _FIGURES * size.reply)
    return (
        f"{episodes:,.0f} episodes an hour of `paper-snake` are {episodes / 3600:,.0f} a second, {turns / 3600:,.0f} turns and "
        f"{turns * size.reply / 3600:,.0f}\ntokens of replies a second. With {size.episodes} episodes an update they are "
        f"{updates:,.0f} updates, so {updates:,.0f} new adapters, a minute.\nTheir rollouts are {stored / 1e12:.1f} TB an hour "
        "before compression."
    )


TABLES = {
    "sizing-fit": fit_table,
    "sizing-shares": shares_text,
    "sizing-memory": memory_table,
    "sizing-frozen-lake": lambda: time_table("paper-frozen-lake"),
    "sizing-snake": lambda: time_table("paper-snake"),
    "sizing-million": lambda: f"{million_facts()}\n\n{million_table(CARDS[5])}",
}
"""Name of a table → its Markdown."""

if __name__ == "__main__":
    for name, make in TABLES.items():
        print(f"{name}\n\n{make()}\n")
    print(f"costs.ACTIVATIONS fitted: {fitted_activations():.2f}; paper.CARD_GB: {CARD_GB}")
