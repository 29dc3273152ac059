"""The other side (d): vLLM as a library in its own environment samples in lockstep; training is side (a)'s.

As a user would write it with vLLM, transformers and peft: vLLM gets the prompts of all live episodes together and shares their
prefixes (prefix caching); the adapter of every update is saved and loaded under a new number, not merged.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from benchmark.throughput.naive import GeneratePolicy, NaiveTrainer
from msgrpo_hub.agent.policy import Policy, Prompt
from msgrpo_hub.downloads.names import POCKET, pocket_path
from msgrpo_hub.episode import Completion, Group
from msgrpo_hub.models.language_model import LanguageModel
from msgrpo_hub.training.trainer import Start

PYTHON = "MSGRPO_VLLM_PYTHON"
"""The environment variable with the path of the interpreter that has vLLM."""
WORKER = Path(__file__).with_name("vllm_worker.py")
ENVIRONMENT = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


class Worker:
    """A process with vLLM's engine, until its context ends.

    Args:
        python: the interpreter that has vLLM.
        model: folder of the base.
        dtype: of its weights, as vLLM names it.
        threads: of the engine.
        lora_rank: largest rank of an adapter; 0 for none.
    """

    def __init__(self, python: str | Path, model: str, dtype: str, threads: int, lora_rank: int = 0) -> None:
        program = [python, "-P", WORKER, model, dtype, str(lora_rank)]
        environment = os.environ | ENVIRONMENT | {"OMP_NUM_THREADS": str(threads)}
        pipe = subprocess.PIPE
        self._process: Any = subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, env=environment)

    def __enter__(self) -> Worker:
        self._answer()  # its start is over
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # waits for its end
            self._process.stdin.close()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Sends `prompts`, lists of token ids, the most `tokens` of a reply, and other fields that `vllm_worker.py` reads.

        Returns:
            `replies`, lists of token ids, and their `seconds`.
        """
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        for line in self._process.stdout:
            if line.startswith("answer "):
                return cast(dict[str, Any], json.loads(line.removeprefix("answer ")))
        raise RuntimeError(f"vLLM ended with {self._process.wait()}: its messages are above")


@dataclass
class VllmPolicy(GeneratePolicy):
    """Answers prompts with vLLM."""

    worker: Worker
    adapter: tuple[int, str]
    """A unique number, and the folder."""

    def complete(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[Completion]:  # noqa: ARG002
        agent = self.agent
        given = agent.tokenizer(agent.render(prompts), add_special_tokens=False)["input_ids"]
        forced = agent.model.generation_config.eos_token_id is None
        answer = self.worker.ask(
            prompts=given,
            tokens=agent.max_new_tokens,
            forced=forced,
            ends=[] if forced else sorted(agent.engine.end_ids),
            temperature=agent.temperature,
            adapter=self.adapter,
        )
        return self.completions(given, answer["replies"])


class VllmTrainer(NaiveTrainer):
    """Samples with vLLM and trains on padded rows."""

    worker: Worker
    adapter: tuple[int, str]

    @contextmanager
    def ready(self) -> Iterator[None]:
        config = self.config
        model = str(pocket_path()) if config.model == POCKET else config.model
        self.numbers = count(1)
        dtype = str(self.model.dtype).removeprefix("torch.")  # vLLM's own choice for float32 is bfloat16
        with Worker(os.environ[PYTHON], model, dtype, torch.get_num_threads(), config.lora_rank) as self.worker:
            yield

    def play(self, starts: Sequence[Start]) -> list[Group]:
        with tempfile.TemporaryDirectory() as folder:
            self.model.save_pretrained(folder)
            self.adapter = next(self.numbers), folder
            return super().play(starts)

    def policy_of(self, agent: LanguageModel) -> Policy:
        return VllmPolicy(agent, self.worker, self.adapter)
