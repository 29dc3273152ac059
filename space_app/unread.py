"""Answers that nobody fetches are forgotten after two minutes. Gradio alone would keep those of 2,000 visitors, up to a
megabyte each."""

from __future__ import annotations

import time
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
        super().__setitem__(session, messages)
        self.busy_at = {each: now if each in busy else self.busy_at[each] for each in self}
        for each in [each for each, when in self.busy_at.items() if when < now - KEPT]:
            del self[each]
            self.queue.pending_event_ids_session.pop(each, None)
