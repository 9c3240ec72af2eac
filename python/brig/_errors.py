"""The exceptions of the package."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._results import Result


class Error(Exception):
    """The base of all exceptions of this package.

    ``code`` is stable and listed in Brig's reference of reason codes. ``hint`` says what to do next. ``rule`` is the
    rule of the policy that decided, if one did. ``report`` is what is known of an execution that took place before the
    error, such as one whose files could not be saved; it has the keys of ``brig run --json``.
    """

    code: str
    hint: str | None
    rule: str | None
    report: dict[str, Any] | None = None

    def __init__(
        self, message: str, *, code: str = "", hint: str | None = None, rule: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.rule = rule

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} (hint: {self.hint})"


class Denied(Error, PermissionError):
    """A policy denied the execution. Nothing was run, and the denial is recorded.

    ``report`` has the keys of ``brig run --json``.
    """

    reason: str = ""
    report: dict[str, Any] = {}


class TimedOut(Error, TimeoutError):
    """The execution took longer than it may, and was ended. ``result`` has what it wrote until then."""

    result: Result


class Failed(Error):
    """What ran did not succeed, and the caller asked for an exception (``check=True``)."""

    result: Result


class InvalidArgument(Error, ValueError):
    """A name, a limit, a mount or another argument is invalid."""


class PolicyInvalid(InvalidArgument):
    """A policy has errors. ``problems`` lists them, with their positions."""

    problems: list[dict[str, Any]] = []

    def __str__(self) -> str:
        lines = [super().__str__()]
        for one in self.problems:
            lines.append(f"{one['file']}:{one['line']}:{one['column']}: {one['message']}")
        return "\n".join(lines)


class Unenforceable(Error, RuntimeError):
    """The backend can't enforce what was asked for. Nothing was run."""


class NotFound(Error, LookupError):
    """There is no such session, execution or checkpoint."""


class AlreadyExists(Error):
    """The name of a session or of a checkpoint is taken."""


class Busy(Error, RuntimeError):
    """Something else uses the session."""


class Forked(Busy):
    """The sandbox belongs to the process that created it; this one is a fork of it."""


class Unavailable(Error, RuntimeError):
    """The backend can't be used here. `doctor` says why, and what would change that."""


class CannotRun(Error, RuntimeError):
    """The program or the interpreter could not be started. ``exit_code`` is what a shell would exit with."""

    exit_code: int = 126


class FileError(Error, OSError):
    """A file of the workspace, or a policy, could not be read or written."""


class Lost(Error, RuntimeError):
    """The sandbox ended while it was in use."""


class AuditError(Error):
    """The log is not what was written, or can't be read."""

    record: int | None = None
    file: str | None = None
    line: int | None = None


class ToolError(Exception):
    """Raised by a tool: its message reaches the code in the sandbox.

    Of any other exception the code learns only the type, because messages may name files and secrets of the host.
    """


_KINDS: dict[str, type[Error]] = {
    "denied": Denied,
    "policy": PolicyInvalid,
    "invalid": InvalidArgument,
    "unenforceable": Unenforceable,
    "not-found": NotFound,
    "exists": AlreadyExists,
    "busy": Busy,
    "forked": Forked,
    "unavailable": Unavailable,
    "cannot-run": CannotRun,
    "file": FileError,
    "lost": Lost,
    "audit": AuditError,
}


def make(
    kind: str, message: str, code: str, hint: str | None, rule: str | None, details: str
) -> Error:
    """The exception of the native module."""
    error = _KINDS.get(kind, Error)(message, code=code, hint=hint, rule=rule)
    more: dict[str, Any] = json.loads(details)
    if isinstance(error, Denied):
        error.report = more
        error.reason = more["decision"]["reason"]
    else:
        for name, value in more.items():
            setattr(error, name, value)
    return error
