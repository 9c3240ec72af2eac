"""The same sandboxes for programs with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _doctor, _native
from ._config import Options
from ._core import Core, Decoder, Request, Step, Work, receipts_of
from ._results import Checkpoint, Control, FileEntry, Output, Result, finished
from ._sandbox import Language

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

T = TypeVar("T")


async def operate(operation: _native.Operation) -> Any:
    """Awaits an operation. Cancelling the task ends its work."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return  # It was cancelled.
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def done(value: Any, error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            pass  # The loop is closed: nobody waits any more.

    operation.start(done)
    try:
        return await future
    except asyncio.CancelledError:
        operation.cancel()
        raise


async def _take(step: Step[T]) -> T:
    return step.made(await operate(step.operation))


async def arun(
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
    """`run` for asyncio. Cancelling the task ends the execution.

    >>> import asyncio, brig
    >>> asyncio.run(brig.arun("print(6 * 7)")).stdout
    '42\\n'
    """
    core = Core(options, None)
    _bind(core)
    request = Request.of(work, language, args, stdin, None, cwd, None, None, facts, check)
    report = await operate(core.sandbox.run_once(*request.arguments))
    return finished(report, core.store, check)


async def adoctor(*, docker_host: str | None = None) -> _doctor.Doctor:
    """`doctor` for asyncio."""
    return _doctor.made(await operate(_native.doctor(_doctor.setup(docker_host))))


def _bind(core: Core) -> None:
    """Async tools and approvers run in this loop."""
    loop = asyncio.get_running_loop()
    for caller in core.callers:
        caller.loop = loop
    if core.approver is not None:
        core.approver.loop = loop


class AsyncExecution:
    """A running execution. Iterate over it for output as it comes; `wait` for the result.

    Leaving its ``async with`` block ends it, if it still runs. So does cancelling the task that waits for it.
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

    async def __aiter__(self) -> AsyncIterator[Output]:
        while True:
            event = await self._guarded(self._native.next())
            if event is None:
                return
            yield self._decoder.output(event)

    async def wait(self) -> Result:
        """The result. Output that was not read is in the result, up to the limit."""
        if self._result is None:
            step = self._core.result(self._native)
            self._result = step.made(await self._guarded(step.operation))
        return self._result

    async def _guarded(self, operation: _native.Operation) -> Any:
        try:
            return await operate(operation)
        except asyncio.CancelledError:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Ends all its processes. Has no effect if it has ended."""
        self._native.cancel()

    def signal(self, number: int) -> None:
        """Sends a signal to the program, as from a terminal."""
        self._native.signal(number)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()


class AsyncFiles:
    """The files of a workspace. Paths are relative to it, or absolute as the code sees them."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def write(self, path: str, content: str | bytes, *, mode: int = 0o644) -> int:
        """Writes a file, with the directories above it. Gives back its size."""
        return await _take(self._core.write(path, content, mode))

    async def read(self, path: str) -> bytes:
        """The content of a file."""
        return await _take(self._core.read(path))

    async def read_text(self, path: str) -> str:
        """The content of a file, which must be UTF-8."""
        return (await self.read(path)).decode()

    async def list(self, path: str = ".") -> list[FileEntry]:
        """The entries of one directory."""
        return await _take(self._core.entries(path))


class AsyncCheckpoints:
    """The saved states of a session's files."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def save(self, name: str) -> Checkpoint:
        """Saves the files under a name."""
        return await _take(self._core.save(name))

    async def list(self) -> list[Checkpoint]:
        """All of them, oldest first."""
        return await _take(self._core.checkpoints())

    async def delete(self, name: str) -> None:
        """Removes one."""
        await _take(self._core.delete(name))


class AsyncSandbox:
    """A sandbox that keeps its files between executions, for asyncio.

    It starts with ``async with`` or ``await``. Cancelling a task that waits for an execution ends the execution.

    >>> import asyncio, brig
    >>> async def main() -> str:
    ...     async with brig.AsyncSandbox() as box:
    ...         runs = [box.run(f"print({n})") for n in range(3)]
    ...         return "".join(result.stdout for result in await asyncio.gather(*runs))
    >>> asyncio.run(main())
    '0\\n1\\n2\\n'
    """

    def __init__(self, *, session: str | None = None, **options: Unpack[Options]) -> None:
        """See `Sandbox` and `Options`. Nothing is started yet."""
        self._attach(Core(options, session))

    def _attach(self, core: Core) -> None:
        self._core = core
        self._files = AsyncFiles(core)
        self._checkpoints = AsyncCheckpoints(core)

    @classmethod
    def open(cls, session: str, **options: Unpack[Options]) -> Self:
        """A session that was kept. Opened, too, with ``async with`` or ``await``."""
        box = cls.__new__(cls)
        box._attach(Core(options, session, existing=True))
        return box

    async def _start(self) -> Self:
        if self._core.native is None:
            _bind(self._core)
            try:
                await _take(self._core.start())
            except asyncio.CancelledError:
                # It may have been created just before.
                await operate(self._core.sandbox.abandon())
                raise
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._start().__await__()

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
    def files(self) -> AsyncFiles:
        """The files of the workspace."""
        return self._files

    @property
    def checkpoints(self) -> AsyncCheckpoints:
        """The saved states of the files."""
        return self._checkpoints

    async def run(
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
        """`Sandbox.run`. Executions of one sandbox may run side by side."""
        request = Request.of(work, language, args, stdin, env, cwd, timeout, output, facts, check)
        return await _take(self._core.run(request))

    async def start(
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
    ) -> AsyncExecution:
        """The same, with output as it comes."""
        request = Request.of(work, language, args, stdin, env, cwd, timeout, output, facts)
        return AsyncExecution(self._core, await _take(self._core.begin(request)))

    async def restore(self, name: str) -> None:
        """Puts the files back as they were at a checkpoint."""
        await _take(self._core.restore(name))

    async def fork(self, name: str, *, session: str | None = None) -> AsyncSandbox:
        """Another sandbox that starts from a checkpoint of this one, with the same options."""
        box = AsyncSandbox.__new__(AsyncSandbox)
        box._attach(await _take(self._core.fork(name, session)))
        return box

    def receipts(self) -> list[dict[str, Any]]:
        """The audit records that summarise its executions, oldest first.

        Without ``audit`` the newest 4096 are kept; a `RuntimeWarning` says how many there were before.
        """
        return receipts_of(self._core.store, self._core.session.id)

    async def close(self) -> None:
        """Ends the sandbox. Its files stay if they are kept; see `Sandbox`."""
        step = self._core.end()
        if step is not None:
            await _finish(step)

    async def destroy(self) -> None:
        """Ends the sandbox and removes its files, also those that are kept."""
        step = self._core.end(keep=False)
        if step is not None:
            await _finish(step)

    async def __aenter__(self) -> Self:
        return await self._start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        name = "not started" if self._core.native is None else self._core.native.id
        return f"AsyncSandbox({name})"


async def _finish(step: Step[None]) -> None:
    """Ending goes on although the task is cancelled meanwhile."""
    await asyncio.shield(asyncio.ensure_future(_take(step)))
