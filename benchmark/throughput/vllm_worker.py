"""vLLM's side, run by the interpreter of vLLM's environment: MODEL DTYPE LORA_RANK; a request is a line."""

import json
import sys
import time


def main(model: str, dtype: str, lora_rank: str) -> None:
    """Answers each request with the tokens of the replies and the seconds they took."""
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]
    from vllm.lora.request import LoRARequest  # type: ignore[import-not-found]

    lora = {"enable_lora": True, "max_lora_rank": int(lora_rank)} if int(lora_rank) else {}
    engine = LLM(model=model, dtype=dtype, max_model_len=1024, enforce_eager=True, enable_prefix_caching=True, **lora)
    print("answer {}", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        forced = asked.get("forced", True)  # to exactly so many tokens
        sampling = SamplingParams(
            temperature=asked.get("temperature", 1.0),
            max_tokens=asked["tokens"],
            min_tokens=asked["tokens"] if forced else 0,
            ignore_eos=forced,
            stop_token_ids=asked.get("ends"),
            detokenize=False,
        )
        number, folder = asked.get("adapter") or (0, "")
        adapter = LoRARequest(f"policy-{number}", number, folder) if number else None
        prompts = [{"prompt_token_ids": ids} for ids in asked["prompts"]]
        began = time.perf_counter()
        outputs = engine.generate(prompts, sampling, use_tqdm=False, lora_request=adapter)
        seconds = time.perf_counter() - began
        replies = [list(output.outputs[0].token_ids) for output in outputs]
        assert not forced or all(len(reply) == asked["tokens"] for reply in replies)
        print("answer", json.dumps({"seconds": seconds, "replies": replies}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
