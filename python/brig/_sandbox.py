"""Sandboxes for programs without async."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from ._config import Options
from ._core import Core, Decoder, Request, Work, receipts_of
from ._results import Checkpoint, Control, FileEntry, Output, Result, finished

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

Language = Literal["python", "bash", "node"]


def run(
    work: Work,
    *,
    language: Language = "python",
    args: Sequence[str] = (),
    stdin: str | bytes | None = None,
    cwd: str | None = None,
    facts: Mapping[str, Any] | None = None,
    check: bool = False,
    **options: Unpack[Options],
) -> Result:
    """Runs code or a command in a sandbox of its own, which is gone afterwards.

    ``work`` is source code for ``language``, or a list: a program and its arguments. ``options`` are those of a
    `Sandbox`. With ``check`` an execution that does not succeed raises `Failed`.

    >>> import brig
    >>> brig.run("print(6 * 7)").stdout
    '42\\n'
    >>> brig.run(["echo", "hello"]).stdout
    'hello\\n'
    """
    core = Core(options, None)
    request = Request.of(work, language, args, stdin, None, cwd, None, None, facts, check)
    report: _native.Report = core.sandbox.run_once(*request.arguments).wait()
    return finished(report, core.store, check)


class Execution:
    """A running execution. Iterate over it for output as it comes; `wait` for the result.

    Leaving its ``with`` block ends it, if it still runs.
    """

    def __init__(self, core: Core, native: _native.Execution) -> None:
        self._core = core
        self._native = native
        self._decoder = Decoder()
        self._result: Result | None = None

    @property
    def id(self) -> str:
        """The id of the execution, as in records."""
        return self._native.id

    def __iter__(self) -> Iterator[Output]:
        while True:
            event = self._native.next().wait()
            if event is None:
                return
            yield self._decoder.output(event)

    def wait(self) -> Result:
        """The result. Output that was not read is in the result, up to the limit."""
        if self._result is None:
            self._result = self._core.result(self._native).wait()
        return self._result

    def cancel(self) -> None:
        """Ends all its processes. Has no effect if it has ended."""
        self._native.cancel()

    def signal(self, number: int) -> None:
        """Sends a signal to the program, as from a terminal."""
        self._native.signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()


class Files:
    """The files of a workspace. Paths are relative to it, or absolute as the code sees them."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def write(self, path: str, content: str | bytes, *, mode: int = 0o644) -> int:
        """Writes a file, with the directories above it. Gives back its size."""
        return self._core.write(path, content, mode).wait()

    def read(self, path: str) -> bytes:
        """The content of a file."""
        return self._core.read(path).wait()

    def read_text(self, path: str) -> str:
        """The content of a file, which must be UTF-8."""
        return self.read(path).decode()

    def list(self, path: str = ".") -> list[FileEntry]:
        """The entries of one directory."""
        return self._core.entries(path).wait()


class Checkpoints:
    """The saved states of a session's files."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def save(self, name: str) -> Checkpoint:
        """Saves the files under a name."""
        return self._core.save(name).wait()

    def list(self) -> list[Checkpoint]:
        """All of them, oldest first."""
        return self._core.checkpoints().wait()

    def delete(self, name: str) -> None:
        """Removes one."""
        self._core.delete(name).wait()


class Sandbox:
    """A sandbox that keeps its files between executions.

    >>> import brig
    >>> with brig.Sandbox(timeout=10) as box:
    ...     size = box.files.write("numbers.txt", "1 2 3")
    ...     box.run("print(sum(map(int, open('numbers.txt').read().split())))").stdout
    '6\\n'
    """

    def __init__(self, *, session: str | None = None, **options: Unpack[Options]) -> None:
        """Starts a sandbox. See `Options` for what can be given.

        With ``state_dir`` and a name as ``session`` the files outlive the ``with`` block and the process: `open`
        finds them again. Otherwise they are gone when the sandbox is closed.
        """
        self._attach(Core(options, session))
        self._core.start().wait()

    def _attach(self, core: Core) -> None:
        self._core = core
        self._files = Files(core)
        self._checkpoints = Checkpoints(core)

    @classmethod
    def open(cls, session: str, **options: Unpack[Options]) -> Self:
        """Opens a session that was kept. Its limits and policies are those it was created with."""
        box = cls.__new__(cls)
        box._attach(Core(options, session, existing=True))
        box._core.start().wait()
        return box

    @property
    def id(self) -> str:
        """The name of the session."""
        return self._core.session.id

    @property
    def status(self) -> str:
        """``ready``, ``executing``, ``destroyed``, …"""
        return "destroyed" if self._core.native is None else self._core.native.status

    @property
    def enforcement(self) -> tuple[Control, ...]:
        """What enforces each control, and how strongly."""
        return self._core.enforcement()

    @property
    def files(self) -> Files:
        """The files of the workspace."""
        return self._files

    @property
    def checkpoints(self) -> Checkpoints:
        """The saved states of the files."""
        return self._checkpoints

    def run(
        self,
        work: Work,
        *,
        language: Language = "python",
        args: Sequence[str] = (),
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        output: int | None = None,
        facts: Mapping[str, Any] | None = None,
        check: bool = False,
    ) -> Result:
        """Runs code, or a command if ``work`` is a list, and waits for it.

        Raises `Denied` if the policy denies it, and `TimedOut` if it takes longer than it may. ``facts`` are added
        for the decision of the policy; they replace none of Brig's own.
        """
        request = Request.of(work, language, args, stdin, env, cwd, timeout, output, facts, check)
        return self._core.run(request).wait()

    def start(
        self,
        work: Work,
        *,
        language: Language = "python",
        args: Sequence[str] = (),
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        output: int | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Execution:
        """The same, with output as it comes. A slow reader slows the program down.

        >>> import brig
        >>> with brig.Sandbox() as box:
        ...     for piece in box.start(["echo", "hello"]):
        ...         print(piece.text, end="")
        hello
        """
        request = Request.of(work, language, args, stdin, env, cwd, timeout, output, facts)
        return Execution(self._core, self._core.begin(request).wait())

    def restore(self, name: str) -> None:
        """Puts the files back as they were at a checkpoint."""
        self._core.restore(name).wait()

    def fork(self, name: str, *, session: str | None = None) -> Sandbox:
        """Another sandbox that starts from a checkpoint of this one, with the same options."""
        box = Sandbox.__new__(Sandbox)
        box._attach(self._core.fork(name, session).wait())
        return box

    def receipts(self) -> list[dict[str, Any]]:
        """The audit records that summarise its executions, oldest first.

        Without ``audit`` the newest 4096 are kept; a `RuntimeWarning` says how many there were before.
        """
        return receipts_of(self._core.store, self._core.session.id)

    def close(self) -> None:
        """Ends the sandbox. Its files stay if they are kept; see the constructor."""
        step = self._core.end()
        if step is not None:
            step.wait()

    def destroy(self) -> None:
        """Ends the sandbox and removes its files, also those that are kept."""
        step = self._core.end(keep=False)
        if step is not None:
            step.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        name = "closed" if self._core.native is None else self._core.native.id
        return f"Sandbox({name})"
