"""A taskset for verifiers: `PYTHONPATH=examples vf-eval msgrpo-games --env.taskset.game Snake-Standard-v1 ...`.

The guide's page on other frameworks has the whole command.
"""

from msgrpo_hub.interop.verifiers_taskset import GameEnv, GameHarness, GameTaskset

__all__ = ["GameEnv", "GameHarness", "GameTaskset"]
