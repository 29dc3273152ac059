"""A credit of your own: the discounted return from each step on, less its mean over the group at that turn.

msgrpo train --preset quickstart --credit examples.own_credit:discounted --output-dir runs/discounted
"""

import torch

GAMMA = 0.9


def discounted(groups, returns, context):
    """Per group and episode, one advantage per step."""
    return [compared([to_go(context.rewards(episode)) for episode in group.episodes]) for group in groups]


def to_go(rewards):
    for turn in range(len(rewards) - 2, -1, -1):
        rewards[turn] += GAMMA * rewards[turn + 1]
    return rewards


def compared(rows):
    mean = torch.nn.utils.rnn.pad_sequence(rows).mean(1)
    return [row - mean[: len(row)] for row in rows]
