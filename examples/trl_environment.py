"""Trains a model that calls tools with TRL's `environment_factory`: it plays by calling `play` with its whole reply.

pip install 'msgrpo-hub[trl]'. The model is an argument: python examples/trl_environment.py Qwen/Qwen3-0.6B
"""

import sys

import torch
from trl import GRPOConfig, GRPOTrainer

from msgrpo_hub.games import make_game
from msgrpo_hub.interop.trl import environment_dataset, trl_environment

GAME = "FrozenLake-NotSlippery-v1"

trainer = GRPOTrainer(
    model=sys.argv[1] if len(sys.argv) > 1 else "Qwen/Qwen3-0.6B",
    train_dataset=environment_dataset(GAME, 64),
    environment_factory=trl_environment(GAME),
    args=GRPOConfig(
        output_dir="runs/trl-tools",
        max_steps=2,
        per_device_train_batch_size=8,
        num_generations=8,
        max_completion_length=4096,  # the whole conversation of an episode
        max_tool_calling_iterations=make_game(GAME).horizon,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
        logging_steps=1,
        save_strategy="no",
    ),
)
trainer.train()
for line in trainer.state.log_history:
    if "reward" in line:
        print(f"mean reward {line['reward']:.2f}, {line['tools/call_frequency']:.1f} calls per episode")
