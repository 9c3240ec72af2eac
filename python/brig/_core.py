"""What the sandboxes with and without async have in common. Everything that waits is a `Step`."""

from __future__ import annotations

import atexit
import codecs
import json
import os
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from . import _native
from ._config import Options, parts
from ._errors import Error
from ._results import Checkpoint, Control, FileEntry, Output, Result, _control, finished

if TYPE_CHECKING:
    from ._approvals import Approver
    from ._tools import Caller

T = TypeVar("T")

Work = str | bytes | Sequence[str]
"""Source code, or a program and its arguments."""

KEPT = 4096
"""How many receipts a sandbox keeps in memory."""

_open: weakref.WeakSet[Core] = weakref.WeakSet()


@dataclass(frozen=True)
class Step(Generic[T]):
    """An operation, and what its answer becomes."""

    operation: _native.Operation
    made: Callable[[Any], T]

    def wait(self) -> T:
        """Waits in this thread, without the interpreter's lock."""
        return self.made(self.operation.wait())


def _same(answer: Any) -> Any:
    return answer


@dataclass(frozen=True)
class Request:
    """What the native module takes for one execution."""

    arguments: tuple[str | None, bytes, list[str], str | None, bytes | None]
    check: bool

    @classmethod
    def of(
        cls,
        work: Work,
        language: str,
        args: Sequence[str],
        stdin: str | bytes | None,
        env: Mapping[str, str] | None,
        cwd: str | None,
        timeout: float | None,
        output: int | None,
        facts: Mapping[str, Any] | None,
        check: bool = False,
    ) -> Request:
        """Code if ``work`` is text, a command if it is a list."""
        more: dict[str, Any] = {}
        for name, value in (("cwd", cwd), ("timeout", timeout), ("output", output)):
            if value is not None:
                more[name] = value
        if args:
            more["args"] = list(args)
        if env:
            more["env"] = dict(env)
        if facts:
            more["facts"] = dict(facts)
        options = json.dumps(more) if more else None
        given = stdin.encode() if isinstance(stdin, str) else stdin
        if isinstance(work, (str, bytes)):
            source = work.encode("utf-8", "surrogateescape") if isinstance(work, str) else work
            return cls((language, source, [], options, given), check)
        if args:
            raise TypeError("args: the arguments of a command are part of it")
        return cls((None, b"", list(work), options, given), check)


class Core:
    """The options of a sandbox, and its session once it was started."""

    def __init__(
        self,
        options: Options,
        session: str | None,
        existing: bool = False,
        store: _native.Receipts | None = None,
    ) -> None:
        self._process = os.getpid()
        self.native: _native.Session | None = None
        # Receipts can be read when the session has ended.
        self.store = _native.Receipts(KEPT) if store is None else store
        self.callers: list[Caller] = []
        if "tools" in options:
            from ._tools import Caller, tools_of

            self.callers = [Caller(tool) for tool in tools_of(options["tools"])]
        self.approver: Approver | None = None
        approve = options.get("approve")
        if approve is not None:
            from ._approvals import Approver

            self.approver = Approver(approve)
        tools = self.callers
        made = parts(options, [one.tool.name for one in tools])
        self.name = session
        self.existing = existing
        # Kept at the end if it has a place and a name to be found by.
        self.kept = not made.temporary and session is not None
        if existing and made.temporary:
            raise TypeError("state_dir: a session that was kept is in a state directory")
        self.sandbox = _native.Sandbox(
            made.setup,
            made.config,
            [policy._document for policy in made.policies],
            [(one.description(), one) for one in tools],
            (self.approver, made.credential),
            self.store,
        )

    # The session.

    def start(self) -> Step[None]:
        """Creates or opens the session."""

        def started(native: _native.Session) -> None:
            self.native = native
            _remember(self)

        if self.existing:
            assert self.name is not None
            return Step(self.sandbox.open(self.name), started)
        return Step(self.sandbox.create(self.name), started)

    def forked(self, native: _native.Session, kept: bool) -> Core:
        """Another session with the same functions."""
        core = Core.__new__(Core)
        core._process = self._process
        core.native = native
        core.callers, core.approver = self.callers, self.approver
        core.name, core.existing, core.kept = native.id, False, kept
        core.sandbox, core.store = self.sandbox, self.store
        _remember(core)
        return core

    @property
    def session(self) -> _native.Session:
        """The session, if there is one."""
        if self.native is None:
            raise Error("the sandbox is closed", code="session.unknown", hint="create another one")
        return self.native

    def end(self, keep: bool | None = None) -> Step[None] | None:
        """Ends the session; what is kept can be opened again. Nothing to do if it has ended."""
        native, self.native = self.native, None
        _open.discard(self)
        # Of a child after a fork it is only a copy.
        if native is None or os.getpid() != self._process:
            return None
        keep = self.kept if keep is None else keep
        return Step(native.close() if keep else native.destroy(), _same)

    def __del__(self) -> None:
        if getattr(self, "native", None) is None or os.getpid() != self._process:
            return
        warnings.warn(f"unclosed sandbox {self.name or ''}", ResourceWarning, source=self)
        _end(self)

    # What it does.

    def run(self, request: Request) -> Step[Result]:
        def made(report: _native.Report) -> Result:
            return finished(report, self.store, request.check)

        return Step(self.session.run(*request.arguments), made)

    def begin(self, request: Request) -> Step[_native.Execution]:
        return Step(self.session.start(*request.arguments), _same)

    def result(self, execution: _native.Execution) -> Step[Result]:
        def made(report: _native.Report) -> Result:
            return finished(report, self.store, False)

        return Step(execution.wait(), made)

    def enforcement(self) -> tuple[Control, ...]:
        return tuple(_control(one) for one in json.loads(self.session.enforcement()))

    # Its files and checkpoints.

    def write(self, path: str, content: str | bytes, mode: int) -> Step[int]:
        data = content.encode() if isinstance(content, str) else content
        return Step(self.session.upload(path, mode, data), _same)

    def read(self, path: str) -> Step[bytes]:
        return Step(self.session.download(path), _same)

    def entries(self, path: str) -> Step[list[FileEntry]]:
        def made(text: str) -> list[FileEntry]:
            return [FileEntry(**one) for one in json.loads(text)]

        return Step(self.session.list_files(path), made)

    def save(self, name: str) -> Step[Checkpoint]:
        def made(text: str) -> Checkpoint:
            return Checkpoint._of(json.loads(text))

        return Step(self.session.save(name), made)

    def checkpoints(self) -> Step[list[Checkpoint]]:
        def made(text: str) -> list[Checkpoint]:
            return [Checkpoint._of(one) for one in json.loads(text)]

        return Step(self.session.checkpoints(), made)

    def restore(self, name: str) -> Step[None]:
        return Step(self.session.restore(name), _same)

    def delete(self, name: str) -> Step[None]:
        return Step(self.session.delete_checkpoint(name), _same)

    def fork(self, name: str, session: str | None) -> Step[Core]:
        kept = self.kept and session is not None

        def made(native: _native.Session) -> Core:
            return self.forked(native, kept)

        return Step(self.session.fork(name, session), made)


def receipts_of(store: _native.Receipts, session: str | None) -> list[dict[str, Any]]:
    """Those of one session, or of all, oldest first. Warns if there were more."""
    text, gone = store.read(session, None)
    if gone:
        warnings.warn(
            f"{gone} older receipts are no longer kept; with the option `audit` all of them are",
            RuntimeWarning,
            stacklevel=3,
        )
    return cast("list[dict[str, Any]]", json.loads(text))


class Decoder:
    """Pieces of output as text, with no character cut in two."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        self._streams = {"stdout": decoder("replace"), "stderr": decoder("replace")}

    def output(self, event: tuple[Literal["stdout", "stderr"], bytes]) -> Output:
        stream, data = event
        return Output(stream, data, self._streams[stream].decode(data))


def _remember(core: Core) -> None:
    """The session ends with the interpreter, if not before."""
    _open.add(core)


def _end(core: Core) -> None:
    try:
        step = core.end()
        if step is not None:
            step.wait()
    except Exception:  # Nobody is there to be told.
        pass


def _after_fork() -> None:
    """A child closes its copies of what keeps the sandboxes alive: they belong to the parent, and end with it."""
    for descriptor in _native.owner_streams():
        os.close(descriptor)


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _end_all() -> None:
    for core in list(_open):
        if core._process == os.getpid():
            _end(core)
    _native.leave()
