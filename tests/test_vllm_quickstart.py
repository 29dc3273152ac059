"""The table of the quickstart acting on vLLM."""

from __future__ import annotations

from typing import Any

from benchmark.throughput.vllm_quickstart import table


def run(acting: str, updates: int, success: float, **more: Any) -> dict[str, Any]:
    each = {"success_of_updates": [0.0] * (updates - 5) + [success] * 5, "seconds_training": [6.0] * updates}
    return {"seed": 3, "acting": acting, "updates_of_run": 100, "updates": updates, **each, **more}


def test_both_ways_of_acting_are_compared_at_the_last_update_that_both_have() -> None:
    served = run("vllm", 10, 0.5, seconds_acting=[54.0] * 10, largest_sampler_k3=2e-13)
    own = run("engine", 12, 0.75, seconds_acting=[1.0, 2.0] * 6, test_success_adapter=0.9)
    head, [line] = table([own, served])
    assert line == ["3", "10 of 100", "0.50 / 0.45", "– / 0.900", "54.0 / 1.5", "10 / 1", "2e-13"]
    assert len(head) == len(line)


def test_runs_that_have_ended_are_summed_up_with_an_interval_over_their_seeds() -> None:
    """By hand: 0.5, 0.6 and 0.7 have a standard error of 0.1 / √3, and Student's t with two degrees of freedom is 4.303."""

    def ended(acting: str, seed: int, test: float) -> dict[str, Any]:
        more = {"largest_sampler_k3": 2e-13} if acting == "vllm" else {}
        return {**run(acting, 10, 0.5, seconds_acting=[2.0] * 10, test_success_adapter=test, **more), "seed": seed}

    runs = [ended("vllm", seed, 0.5 + seed / 10) for seed in range(3)] + [ended("engine", seed, 0.7) for seed in range(3)]
    *_, last = table(runs)[1]
    assert last == ["all", "", "", "0.600 [0.352, 0.848] / 0.700 (no interval)", "", "", ""]
    del runs[1]["test_success_adapter"]
    assert [line[0] for line in table(runs)[1]] == ["0", "1", "2"]
