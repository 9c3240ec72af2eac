"""Commands for models: what a policy denied and what took too long are answers too, as in a shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._core import Core, Request, Work
from .._errors import CannotRun, Denied, TimedOut
from .._results import Result
from ._argv import Refused, Source, classify
from ._steps import Steps

TIMED_OUT = 124
DENIED = 126


@dataclass(frozen=True)
class Outcome:
    """How a command ended. ``timed_out`` and ``denied`` have an exit code too, that of the command line of Brig."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    timed_out: bool = False
    denied: bool = False
    killed: str | None = None

    @property
    def text(self) -> str:
        """Both streams, one after the other."""
        return (self.stdout + self.stderr).decode("utf-8", "replace")


def run(
    core: Core,
    work: Work,
    *,
    language: str = "python",
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout: float | None = None,
) -> Steps[Outcome]:
    """Runs it, and says on its stderr why it was not run or was ended."""
    try:
        result = yield core.run(Request.of(work, language, (), stdin, env, cwd, timeout, None, None))
    except TimedOut as error:
        ended = _ended(error.result, TIMED_OUT, str(error))
        return Outcome(ended.exit_code, ended.stdout, ended.stderr, ended.truncated, timed_out=True, killed="timeout")
    except Denied as error:
        return Outcome(DENIED, b"", _line(str(error)), denied=True)
    except CannotRun as error:
        return Outcome(error.exit_code, b"", _line(str(error)))
    if result.killed:
        return _ended(result, result.exit_code, f"ended because of {result.killed}")
    return Outcome(result.exit_code, result.stdout_bytes, result.stderr_bytes, result.truncated)


def shell(core: Core, command: str, **more: Any) -> Steps[Outcome]:
    """Runs what a model wrote for a shell, as source code: so the rules of the policy about code see it."""
    return run(core, command, language="bash", **more)


def command(core: Core, argv: Sequence[str], **more: Any) -> Steps[Outcome]:
    """Runs a program for a model. Code in an argument is run as source code, or refused if that can't be the same."""
    found = classify(argv)
    if isinstance(found, Refused):
        return Outcome(DENIED, b"", _line(found.reason), denied=True)
    if isinstance(found, Source):
        return (yield from run(core, found.code, language=found.language, **more))
    return (yield from run(core, list(argv), **more))


def _line(why: str) -> bytes:
    return f"brig: {why}\n".encode()


def _ended(result: Result, code: int, why: str) -> Outcome:
    stderr = result.stderr_bytes
    if stderr and not stderr.endswith(b"\n"):
        stderr += b"\n"
    return Outcome(code, result.stdout_bytes, stderr + _line(why), result.truncated, killed=result.killed)
