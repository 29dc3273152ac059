"""Trains the built-in base on the lake with TRL's `GRPOTrainer`: our groups of episodes come in through `rollout_func`.

pip install 'msgrpo-hub[trl]', and for more than a few updates: python examples/trl_rollout.py 25
"""

import sys

from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from msgrpo_hub.games import episode_seed, make_game
from msgrpo_hub.interop.trl import episode_return, rollout_dataset, trl_rollout
from msgrpo_hub.models import LanguageModel
from msgrpo_hub.rollout import play_groups

GAME = "FrozenLake-NotSlippery-v1"
UPDATES = int(sys.argv[1]) if len(sys.argv) > 1 else 2
GROUPS, GROUP_SIZE = 4, 16


def successes(agent: LanguageModel) -> int:
    """How many of 50 test boards it solves."""
    seeds = [episode_seed(GAME, "test", index) for index in range(50)]
    return sum(group.episodes[0].success for group in play_groups(make_game(GAME), agent, seeds, group_size=1))


agent = LanguageModel.from_pretrained("pocket", max_new_tokens=32)
print(f"before: success on {successes(agent)} of 50 test boards")
trainer = GRPOTrainer(
    model=agent.model,
    processing_class=agent.tokenizer,
    reward_funcs=episode_return,
    train_dataset=rollout_dataset(GAME, UPDATES * GROUPS),
    rollout_func=trl_rollout(),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    args=GRPOConfig(
        output_dir="runs/trl",
        max_steps=UPDATES,
        per_device_train_batch_size=GROUPS * GROUP_SIZE,
        num_generations=GROUP_SIZE,
        max_completion_length=32,
        learning_rate=1e-3,
        gradient_checkpointing=False,
        bf16=False,
        report_to=[],
        logging_steps=1,
        save_strategy="no",
    ),
)
trainer.train()
trained = LanguageModel(trainer.model.eval(), agent.tokenizer, max_new_tokens=32)
print(f"after {UPDATES} updates: success on {successes(trained)} of 50 test boards")
trainer.save_model("runs/trl/adapter")
