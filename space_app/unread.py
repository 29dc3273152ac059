"""Answers that nobody fetches are forgotten after two minutes, and earlier when there are too many.

Gradio alone keeps those of 2,000 visitors, up to a megabyte each, and when one more comes it forgets the oldest, even if that
visitor still waits: a crowd would take away the answers that last longest.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

from gradio.queueing import Queue
from gradio.utils import LRUCache

KEPT = 120.0
"""Seconds for which an answer waits to be fetched."""


class Unread(LRUCache[str, Any]):
    """Session → messages that its page has not fetched; takes the place of gradio's own table."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue.pending_messages_per_session.max_size)
        self.queue = queue
        self.busy_at: dict[str, float] = {}
        """Session → when it was last seen to wait for an answer."""

    def __setitem__(self, session: str, messages: Any) -> None:
        now = time.monotonic()
        busy = {session, *(event.session_hash for event in self.queue.event_ids_to_events.values())}
        OrderedDict.__setitem__(self, session, messages)
        self.busy_at = {each: now if each in busy else self.busy_at[each] for each in self}
        idle = sorted(self.keys() - busy, key=self.busy_at.__getitem__)
        too_many = max(0, len(self) - self.max_size)
        for each in [each for place, each in enumerate(idle) if place < too_many or self.busy_at[each] < now - KEPT]:
            del self[each]
            self.queue.pending_event_ids_session.pop(each, None)
