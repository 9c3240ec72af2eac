"""Who answers where a policy requires an approval."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from ._tools import run_awaitable

if TYPE_CHECKING:
    import asyncio

_log = logging.getLogger("brig")


@dataclass(frozen=True)
class ApprovalRequest:
    """What somebody is asked to approve. ``text`` comes from the agent: escape it before you show it."""

    agent: str
    session: str
    execution: str
    kind: Literal["code", "command", "tool"]
    name: str
    text: str
    digest: str
    rule: str | None
    message: str
    timeout: float


@dataclass(frozen=True)
class Approval:
    """An answer: approved or not, by whom, and why. Also true and false are answers."""

    approved: bool
    by: str = "python"
    reason: str | None = None


class Approver:
    """What the native module calls, in a thread of its own. What raises denies."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, text: str, call: _native.Call) -> tuple[bool, str, str | None]:
        given = json.loads(text)
        subject, timeout = given["subject"], given["timeout"]
        request = ApprovalRequest(
            agent=given["agent"],
            session=given["session"],
            execution=given["execution"],
            kind=subject["kind"],
            name=subject["name"],
            text=subject["text"],
            digest=subject["digest"],
            rule=given["rule"],
            message=given["message"],
            timeout=timeout["secs"] + timeout["nanos"] / 1e9,
        )
        try:
            answer = self.function(request)
            if inspect.isawaitable(answer):
                answer = run_awaitable(answer, self.loop, call)
        except Exception as error:
            _log.warning("the approver failed", exc_info=error)
            return False, "python", "the approver failed"
        if isinstance(answer, Approval):
            return answer.approved, answer.by, answer.reason
        if isinstance(answer, bool):
            return answer, "python", None
        _log.warning("an approver answers with True, False or an Approval, not %r", answer)
        return False, "python", "the approver did not answer"
