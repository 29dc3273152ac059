"""Trains a LoRA adapter for the built-in base, for a few updates, and plays with it.

A real run has more updates and larger groups: `msgrpo train --preset quickstart-snake --output-dir runs/snake`.
"""

import sys
from pathlib import Path

from msgrpo_hub.games import make_game
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.rollout import play_groups
from msgrpo_hub.training import TrainConfig, train

output_dir = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example-train")
config = TrainConfig(
    game="Snake-Short-v1",
    updates=3,
    groups=2,
    group_size=8,
    selected_per_group=4,
    learning_rate=1e-3,
    max_new_tokens=32,
    eval_every=0,
    test_episodes=5,
)
summary = train(config, output_dir)
for player in ("random", "base", "adapter"):
    print(f"{player}: mean reward {summary[player]['reward']:.2f} in {summary['episodes']} test episodes")

agent = LanguageModel.from_pretrained(str(output_dir / "adapter"), max_new_tokens=32)
[group] = play_groups(make_game(config.game), agent, seeds=[0], group_size=2)
for step in group.episodes[0].steps:
    print(f"{step.completion.text}  →  {step.action}, reward {step.reward:g}")
