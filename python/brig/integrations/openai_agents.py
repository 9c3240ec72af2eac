"""Sandboxes for the OpenAI Agents SDK.

    ShellTool(executor=shell(box))                                    # a tool of an agent
    RunConfig(sandbox=SandboxRunConfig(client=BrigSandboxClient()))   # the workspace of a sandbox agent
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .._async import AsyncSandbox
from .._config import Options
from .._errors import Error, NotFound
from . import _commands, _files
from ._commands import Outcome, run
from ._extras import missing
from ._steps import adrive, core

try:
    from agents import ShellCallOutcome, ShellCommandOutput, ShellCommandRequest, ShellResult
    from agents.sandbox.errors import (
        ExecTimeoutError,
        ExecTransportError,
        WorkspaceArchiveReadError,
        WorkspaceArchiveWriteError,
        WorkspaceReadNotFoundError,
        WorkspaceWriteTypeError,
    )
    from agents.sandbox.manifest import Manifest
    from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
    from agents.sandbox.session.manager import Instrumentation
    from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
    from agents.sandbox.session.sandbox_session import SandboxSession
    from agents.sandbox.session.sandbox_session_state import SandboxSessionState
    from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
    from agents.sandbox.types import ExecResult, User
    from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes
except ImportError as error:
    raise missing("openai_agents", error) from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._sandbox import Sandbox

__all__ = ["BrigSandboxClient", "BrigSandboxSession", "BrigSandboxSessionState", "shell"]

_ARCHIVE = "/tmp/brig-workspace.tar"


def shell(box: Sandbox | AsyncSandbox) -> Callable[[ShellCommandRequest], Awaitable[ShellResult]]:
    """The executor of a ``ShellTool``. Commands run one after the other; one that takes too long is the last."""

    async def execute(request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        timeout = action.timeout_ms / 1000 if action.timeout_ms else None
        outputs: list[ShellCommandOutput] = []
        for command in action.commands:
            outcome = await adrive(_commands.shell(core(box), command, timeout=timeout))
            ended = ShellCallOutcome("timeout") if outcome.timed_out else ShellCallOutcome("exit", outcome.exit_code)
            outputs.append(
                ShellCommandOutput(
                    stdout=outcome.stdout.decode("utf-8", "replace"),
                    stderr=outcome.stderr.decode("utf-8", "replace"),
                    outcome=ended,
                    command=command,
                )
            )
            if outcome.timed_out:
                break
        return ShellResult(output=outputs, max_output_length=action.max_output_length)

    return execute


class BrigSandboxSessionState(SandboxSessionState):
    """What is needed to find the sandbox again."""

    type: Literal["brig"] = "brig"
    session: str


class BrigSandboxSession(BaseSandboxSession):
    """A sandbox as the session of a sandbox agent. The client makes it."""

    state: BrigSandboxSessionState

    def __init__(self, state: BrigSandboxSessionState, box: AsyncSandbox) -> None:
        self.state = state
        self.box = box

    async def _prepare_backend_workspace(self) -> None:
        root = self.state.manifest.root
        outcome = await adrive(run(core(self.box), ["mkdir", "-p", "--", root]))
        if outcome.exit_code != 0:
            raise ValueError(f"the root of the manifest must be /workspace or below it: {outcome.text.strip()}")

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:  # noqa: ASYNC109
        outcome = await self._command([str(part) for part in command], timeout)
        return ExecResult(stdout=outcome.stdout, stderr=outcome.stderr, exit_code=outcome.exit_code)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """The content of a file."""
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        where = await self._validate_path_access(path)
        try:
            return io.BytesIO(await adrive(_files.read(core(self.box), where.as_posix())))
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except (OSError, Error) as error:
            raise WorkspaceArchiveReadError(path=path, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Writes a file."""
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        where = await self._validate_path_access(path, for_write=True)
        try:
            await adrive(_files.write(core(self.box), where.as_posix(), _bytes(path, data)))
        except (OSError, Error) as error:
            raise WorkspaceArchiveWriteError(path=where, cause=error) from error

    async def running(self) -> bool:
        """Whether the sandbox is there."""
        return self.box.status != "destroyed"

    async def persist_workspace(self) -> io.IOBase:
        """The workspace as a tar archive."""
        root = self._workspace_root_path()
        skipped = sorted(path.as_posix() for path in self._persist_workspace_skip_relpaths())
        exclude = [f"--exclude=./{path}" for path in skipped]
        archive = ["tar", "-C", root.as_posix(), *exclude, "-cf", _ARCHIVE, "."]
        try:
            outcome = await self._command(archive)
            if outcome.exit_code != 0:
                raise WorkspaceArchiveReadError(path=root, context={"stderr": outcome.text})
            data = await adrive(_files.read(core(self.box), _ARCHIVE))
        except (OSError, Error) as error:
            raise WorkspaceArchiveReadError(path=root, cause=error) from error
        finally:
            await self._command(["rm", "-f", _ARCHIVE])
        return io.BytesIO(data)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Puts the files of a tar archive into the workspace."""
        root = self._workspace_root_path()
        archive = _bytes(root, data)
        try:
            validate_tar_bytes(archive, allow_external_symlink_targets=False)
        except UnsafeTarMemberError as error:
            raise WorkspaceArchiveWriteError(
                path=root, context={"reason": "unsafe_or_invalid_tar", "member": error.member}, cause=error
            ) from error
        outcome = await adrive(run(core(self.box), ["tar", "-C", root.as_posix(), "-xf", "-"], stdin=archive))
        if outcome.exit_code != 0:
            raise WorkspaceArchiveWriteError(path=root, context={"stderr": outcome.text})

    async def _shutdown_backend(self) -> None:
        await self.box.close()

    async def _command(self, command: list[str], timeout: float | None = None) -> Outcome:  # noqa: ASYNC109
        env = await self.state.manifest.environment.resolve()
        root = self.state.manifest.root
        # The model chooses the shell too.
        steps = _commands.command(core(self.box), command, env=env, cwd=root, timeout=timeout)
        try:
            outcome = await adrive(steps)
        except Error as error:
            raise ExecTransportError(command=command, cause=error) from error
        if outcome.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        return outcome


class BrigSandboxClient(BaseSandboxClient[BaseSandboxClientOptions | None]):
    """Makes the sandboxes of sandbox agents. Takes the options of a sandbox: a run can't change them.

    With ``state_dir`` a session is found again when it is resumed, also by another process. Otherwise its files come
    back from the snapshot, if there is one.
    """

    backend_id = "brig"
    supports_default_options = True

    def __init__(self, **options: Unpack[Options]) -> None:
        self._options = options
        self._instrumentation = Instrumentation()

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: BaseSandboxClientOptions | None = None,
    ) -> SandboxSession:
        """A new sandbox."""
        if options is not None:
            raise TypeError("the options of a sandbox are given to the client")
        manifest = self._validate_manifest_for_create(Manifest() if manifest is None else manifest)
        session_id = uuid.uuid4()
        box = await AsyncSandbox(session=f"agent-{session_id.hex}", **self._options)
        state = BrigSandboxSessionState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            session=box.id,
        )
        return self._wrap_session(BrigSandboxSession(state, box), instrumentation=self._instrumentation)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Removes the sandbox and its files."""
        inner = session._inner
        if not isinstance(inner, BrigSandboxSession):
            raise TypeError("this is not a session of Brig")
        if await inner.running():
            await inner.box.destroy()
        elif "state_dir" in self._options:
            try:
                box = await AsyncSandbox.open(inner.state.session, **self._options)
            except NotFound:
                return session
            await box.destroy()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """The sandbox of a state, or a new one in its place."""
        if not isinstance(state, BrigSandboxSessionState):
            raise TypeError("this is not a state of Brig")
        state.assert_path_grants_rebound()
        preserved = False
        box: AsyncSandbox | None = None
        if "state_dir" in self._options:
            try:
                box = await AsyncSandbox.open(state.session, **self._options)
                preserved = True
            except NotFound:
                pass
        if box is None:
            box = await AsyncSandbox(session=f"agent-{uuid.uuid4().hex}", **self._options)
            state.session = box.id
            state.workspace_root_ready = False
        inner = BrigSandboxSession(state, box)
        inner._set_start_state_preserved(preserved)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """A state from JSON."""
        return self._deserialize_session_state_payload(payload, BrigSandboxSessionState)


def _bytes(path: Path, data: io.IOBase) -> bytes:
    given = data.read()
    if isinstance(given, str):
        return given.encode()
    if not isinstance(given, (bytes, bytearray)):
        raise WorkspaceWriteTypeError(path=path, actual_type=type(given).__name__)
    return bytes(given)
