"""Threads that wait for servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


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
