"""What comes out of executions, files and checkpoints. Nothing here can be changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from . import _native
from ._errors import Failed, NotFound, TimedOut


@dataclass(frozen=True)
class Usage:
    """What an execution used."""

    cpu_seconds: float
    peak_memory_bytes: int


@dataclass(frozen=True)
class Control:
    """One control: how well it works, and by what."""

    name: str
    strength: Literal["enforced", "observed", "absent"]
    by: str
    fix: str | None = None


@dataclass(frozen=True)
class Attempt:
    """What an execution asked for and was denied: a host, a command or a tool.

    ``details`` is the record of it.
    """

    kind: Literal["network", "command", "tool"]
    what: str
    code: str
    rule: str | None
    details: dict[str, Any]


@dataclass(frozen=True)
class FileEntry:
    """One entry of a directory of the workspace."""

    name: str
    kind: Literal["file", "directory", "link", "other"]
    size: int
    mode: int


@dataclass(frozen=True)
class Checkpoint:
    """A saved state of the files of a session. ``digest`` is over everything in it."""

    name: str
    created: datetime
    digest: str
    bytes: int

    @classmethod
    def _of(cls, given: dict[str, Any]) -> Checkpoint:
        created = given["created"].replace("Z", "+00:00")
        # Python 3.10 reads only microseconds.
        whole, dot, rest = created.partition(".")
        if dot:
            digits = rest[: len(rest) - 6]
            created = f"{whole}.{digits[:6]:0<6}{rest[len(digits) :]}"
        return cls(given["name"], datetime.fromisoformat(created), given["digest"], given["bytes"])


@dataclass(frozen=True)
class Output:
    """A piece of output, as it came. ``text`` is decoded so that no character is cut in two."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    text: str


class Result:
    """The answer to an execution that ran, whatever its exit code.

    >>> import brig
    >>> result = brig.run("print(6 * 7)")
    >>> result.ok, result.stdout
    (True, '42\\n')
    """

    __slots__ = ("_parsed", "_report", "_store")
    _report: _native.Report
    _store: _native.Receipts
    _parsed: dict[str, Any]

    def __init__(self, native: _native.Report, store: _native.Receipts) -> None:
        object.__setattr__(self, "_report", native)
        object.__setattr__(self, "_store", store)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a result can't be changed: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a result can't be changed: {name}")

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0 and the execution was not ended by Brig."""
        return self._report.success

    @property
    def status(self) -> str:
        """``completed``, ``failed`` or ``cancelled``."""
        return self._report.status

    @property
    def exit_code(self) -> int:
        """The exit code of the program; 128 + signal if a signal ended it."""
        return self._report.exit_code

    @property
    def stdout(self) -> str:
        """What it wrote to standard output. Bytes that are not UTF-8 are replaced."""
        return self._report.stdout.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """What it wrote to standard error. Bytes that are not UTF-8 are replaced."""
        return self._report.stderr.decode("utf-8", "replace")

    @property
    def stdout_bytes(self) -> bytes:
        """Standard output as it was written."""
        return self._report.stdout

    @property
    def stderr_bytes(self) -> bytes:
        """Standard error as it was written."""
        return self._report.stderr

    @property
    def truncated(self) -> bool:
        """Whether it wrote more than was kept."""
        return any(self._report.truncated)

    @property
    def duration(self) -> float:
        """Seconds from start to end."""
        return self._report.duration

    @property
    def killed(self) -> str | None:
        """Why Brig ended it: ``timeout``, ``memory``, ``processes``, ``output``, ``cancelled`` or ``destroyed``."""
        return self._report.killed

    @property
    def usage(self) -> Usage:
        """What it used."""
        return Usage(self._report.cpu_seconds, self._report.peak_memory_bytes)

    @property
    def execution_id(self) -> str:
        """The id of the execution, as in records."""
        return self._report.execution_id

    @property
    def session_id(self) -> str:
        """The session it ran in."""
        return self._report.session_id

    @property
    def backend(self) -> str:
        """The backend it ran on."""
        return self._report.backend

    @property
    def enforcement(self) -> tuple[Control, ...]:
        """What enforced each control, and how strongly."""
        return tuple(_control(one) for one in self.to_dict()["enforcement"])

    @property
    def denied(self) -> tuple[Attempt, ...]:
        """What it asked for and was denied."""
        report = self.to_dict()
        kinds: tuple[tuple[Literal["network", "command", "tool"], str, Callable[[Any], str]], ...] = (
            ("network", "egress", lambda one: f"{one['host']}:{one['port']}"),
            ("command", "commands", lambda one: str(one["program"])),
            ("tool", "tools", lambda one: str(one["tool"])),
        )
        return tuple(
            Attempt(kind, what(one), one["code"], one["rule"], one)
            for kind, key, what in kinds
            for one in report[key]
            if not one["allowed"]
        )

    @property
    def receipt(self) -> dict[str, Any]:
        """The audit record that summarises this execution. Raises `NotFound` if it is no longer kept."""
        text, _ = self._store.read(self.session_id, self.execution_id)
        found: list[dict[str, Any]] = json.loads(text)
        if not found:
            raise NotFound(
                f"the receipt of execution `{self.execution_id}` is no longer kept",
                code="audit.no-record",
                hint="with the option `audit` all of them are",
            )
        return found[-1]

    def to_dict(self) -> dict[str, Any]:
        """The object that ``brig run --json`` prints."""
        try:
            return self._parsed
        except AttributeError:
            object.__setattr__(self, "_parsed", json.loads(self._report.json()))
        return self._parsed

    def check(self) -> Result:
        """This result, if it is ok; raises `Failed` otherwise."""
        if self.ok:
            return self
        why = f"ended because of {self.killed}" if self.killed else f"exit code {self.exit_code}"
        last = self.stderr.strip().rpartition("\n")[2]
        failed = Failed(
            f"the execution failed: {why}" + (f": {last}" if last else ""),
            code=f"run.{self.killed}" if self.killed else "run.failed",
        )
        failed.result = self
        raise failed

    def __repr__(self) -> str:
        killed = f", killed={self.killed!r}" if self.killed else ""
        out, err = _short(self.stdout), _short(self.stderr)
        return f"Result(exit_code={self.exit_code}{killed}, stdout={out}, stderr={err})"


def _short(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}…"


def _control(given: dict[str, Any]) -> Control:
    return Control(given["control"], given["strength"], given["by"], given["fix"])


def finished(native: _native.Report, store: _native.Receipts, check: bool) -> Result:
    """The result of a report. One that took too long raises."""
    result = Result(native, store)
    if native.killed == "timeout":
        limit = result.to_dict()["result"]["kill_detail"]["limit_ms"] / 1000
        late = TimedOut(
            f"the execution took longer than {limit:g} s and was ended",
            code="run.timeout",
            hint="give it more time with `timeout`, as far as the policy allows it",
        )
        late.result = result
        raise late
    return result.check() if check else result
