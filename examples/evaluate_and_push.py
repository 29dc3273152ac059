"""Evaluates two players and compares them; trains for two updates and writes the files of a push of its episodes."""

import subprocess
import sys
from pathlib import Path

from msgrpo_hub.evaluation import compare, evaluate
from msgrpo_hub.training import TrainConfig, train

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example-push")

for result in evaluate(["random", "greedy"], suite="quick", output_dir=folder / "eval"):
    print(f"{result.player} on {result.task}: mean reward {result.summary['reward']['mean']:.2f}")
for task in compare(folder / "eval" / "random", folder / "eval" / "greedy"):
    print(f"{task.task}: greedy − random = {task.rewards.difference:.2f}, 95 % interval {task.rewards.interval}")

small = TrainConfig(
    game="Snake-Short-v1",
    updates=2,
    groups=2,
    group_size=4,
    selected_per_group=2,
    max_new_tokens=32,
    eval_every=0,
    test_episodes=0,
    save_rollouts=True,
)
train(small, folder / "run")

# After `hf auth login`, the same command without --dry-run pushes. `push adapter` and `push results` go alike.
push = [sys.executable, "-m", "msgrpo_hub", "push", "rollouts", folder / "run", "you/snake-rollouts"]
subprocess.run([*push, "--dry-run", folder / "staged"], check=True)
