"""How many threads of the CPU a model computes with, and threads that wait for servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

import psutil
import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

ONE_THREAD = 10_000_000
"""Models with fewer parameters compute on one thread: a second one gains nothing, and waits where it has no core of its own.
"""


def default_threads(parameters: int) -> int | None:
    """The threads for a model of so many parameters; None leaves them as torch is set: every core, or OMP_NUM_THREADS.

    >>> default_threads(800_000)
    1
    """
    return 1 if parameters < ONE_THREAD else None


def free_cores() -> int:
    """The threads of torch, at most as many as the cgroup allows, less the cores that other programs use; at least 1.

    A core counts as used if it is busy for half a second now and was during the last minute.
    """
    cores = float(torch.get_num_threads())
    with suppress(OSError, ValueError):  # no such file, or no limit
        quota, period = map(float, Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split())
        cores = min(cores, quota / period)
    busy = min(psutil.getloadavg()[0], sum(psutil.cpu_percent(0.5, percpu=True)) / 100)
    return max(1, int(cores - busy + 0.5))


@contextmanager
def on_threads(count: int | None) -> Iterator[None]:
    """Computes with so many threads inside the context; None begins with as many as before. Afterwards all is as before."""
    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def begun(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Future[Result]]:
    """`function` of each item, so many at a time.

    The threads end with the program, so that an interruption waits for no server; those of an executor are waited for.
    """
    futures: list[Future[Result]] = [Future() for _ in items]
    waiting: SimpleQueue[tuple[Future[Result], Item]] = SimpleQueue()
    for entry in zip(futures, items, strict=True):
        waiting.put(entry)

    def work() -> None:
        while True:
            try:
                future, item = waiting.get_nowait()
            except Empty:
                return
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(item))
                except BaseException as error:
                    future.set_exception(error)

    for _ in range(min(workers, len(items))):
        Thread(target=work, daemon=True).start()
    return futures
