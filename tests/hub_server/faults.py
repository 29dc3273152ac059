"""What can be made to fail: declared as data, and consumed by the requests that it meets.

In a test, `hub.fail("unavailable", where="POST .*/preupload/", times=2)`; by hand, the same over HTTP:

    curl -d '{"fault": "unavailable", "where": "POST .*/preupload/", "times": 2}' http://127.0.0.1:PORT/_faults

GET /_faults lists those that are still to come, DELETE /_faults drops them.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    where: str = ""
    """Regular expression, searched in `METHOD /path?query` as it was sent; the empty one is found everywhere."""
    body: str = ""
    """Regular expression that must also be found in the request's body."""
    after: int = 0
    """So many matching requests pass first."""
    times: int = 1
    """So many fail then."""
    status: int = 0
    """The answer, instead of the real one. 0: the request is served."""
    code: str = ""
    """Its `X-Error-Code`."""
    message: str = "a fault of this test"
    headers: dict[str, str] = field(default_factory=dict)
    truncate: int | None = None
    """The request is served, but the connection breaks after so many bytes of the answer's body. 0: the answer is lost."""
    race: bool = False
    """Somebody else's commit lands on main of the repository just before the request."""


QUOTA = "You must have a paid plan to create this Space"
KNOWN = {
    "unavailable": Fault(status=503, message="Service Unavailable"),
    "rate_limited": Fault(
        status=429,
        message="We had to rate limit you",
        headers={"RateLimit": '"api";r=0;t=1', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'},
    ),
    "commit_fails": Fault(where=r"POST /api/.*/commit/", status=500, message="Internal Error"),
    "race": Fault(where=r"POST /api/.*/commit/", race=True),
    "payment_required": Fault(where=r"POST /api/repos/create", body=r'"type": ?"space"', status=402, message=QUOTA),
    "gated": Fault(where="/resolve/", status=403, code="GatedRepo", message="Access to this repository is restricted."),
    "truncated": Fault(where="GET .*/resolve/", truncate=100),
    "lost_answer": Fault(where=r"POST /api/.*/commit/", truncate=0),
}
"""Those that matter to us, by name."""


@dataclass
class Faults:
    """Those that are still to come, in the order in which they were declared."""

    coming: list[Fault] = field(default_factory=list)

    def add(self, name: str, **changes: Any) -> Fault:
        """Declares a known fault, with some fields changed.

        >>> Faults().add("unavailable", where="whoami", times=2).status
        503
        """
        fault = dataclasses.replace(KNOWN[name], **changes)
        self.coming.append(fault)
        return fault

    def meet(self, request: str, body: bytes) -> Fault | None:
        """The fault that this request runs into: the first that matches. It counts as having happened."""
        for index, fault in enumerate(self.coming):
            if re.search(fault.where, request) and re.search(fault.body.encode(), body):
                if fault.after:
                    self.coming[index] = dataclasses.replace(fault, after=fault.after - 1)
                    return None
                left = [dataclasses.replace(fault, times=fault.times - 1)] if fault.times > 1 else []
                self.coming[index : index + 1] = left
                return fault
        return None
