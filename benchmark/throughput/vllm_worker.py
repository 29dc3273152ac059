"""vLLM's side of `benchmark.throughput.vllm`, run by the interpreter of vLLM's environment: MODEL DTYPE; a request is a line."""

import json
import sys
import time


def main(model: str, dtype: str) -> None:
    """Answers each request, `prompts` and `tokens`, with the seconds it took."""
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]

    engine = LLM(model=model, dtype=dtype, max_model_len=1024, enforce_eager=True, enable_prefix_caching=True)
    for line in sys.stdin:
        asked = json.loads(line)
        forced = SamplingParams(temperature=1.0, min_tokens=asked["tokens"], max_tokens=asked["tokens"], ignore_eos=True)
        prompts = [{"prompt_token_ids": ids} for ids in asked["prompts"]]
        began = time.perf_counter()
        replies = engine.generate(prompts, forced, use_tqdm=False)
        seconds = time.perf_counter() - began
        assert all(len(reply.outputs[0].token_ids) == asked["tokens"] for reply in replies)
        print(f"seconds {seconds}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
