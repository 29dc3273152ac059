#!/usr/bin/env bash
# Engine and training step on one CUDA GPU, unattended, in under 8 minutes: benchmark/throughput/gpu.sh OUTPUT_DIR
# Needs PyTorch, transformers, peft and pyarrow for Python (PYTHON=python3 by default), and no network.
set -euo pipefail

output="${1:?usage: benchmark/throughput/gpu.sh OUTPUT_DIR [--device cpu --tiny]}"
shift
mkdir -p "$output"
output="$(cd "$output" && pwd)"
cd "$(dirname "$0")/../.."
python="${PYTHON:-python3}"
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

timeout 460 "$python" -W ignore -m benchmark.throughput.gpu "$output" "$@" 2> >(tee "$output/stderr.log" >&2)
