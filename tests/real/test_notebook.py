"""The notebook for a GPU with a pretrained model, in miniature."""

from __future__ import annotations

from pathlib import Path

from tests.real.models import real_model
from tests.test_examples import run_gpu_notebook


def test_the_notebook_for_a_gpu_trains_qwen(tmp_path: Path) -> None:
    run_gpu_notebook(real_model("qwen-0.5b"), tmp_path)
