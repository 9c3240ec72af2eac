"""Sandboxes as workspaces of Pydantic AI.

    agent = Agent(model, capabilities=[BrigWorkspace(policy="policy.yaml")])

A workspace lives until `BrigBackend.destroy` or the end of the process. With ``state_dir`` it is kept beyond that, and
its ref finds it again from any process of the same machine. For asyncio.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._async import AsyncSandbox
from .._config import Options, parts
from .._errors import Error, Lost, NotFound
from . import _commands as commands
from ._extras import missing
from ._steps import adrive, core

try:
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.workspaces import (
        CommandResult,
        SupportsCommands,
        WorkspaceBackend,
        WorkspaceCommand,
        WorkspaceOutputLimitError,
        WorkspaceRef,
        WorkspaceTimeoutError,
        WorkspaceUnavailableError,
    )
    from pydantic_ai.workspaces.protocol import validate_timeout
except ImportError as error:
    raise missing("pydantic_ai", error) from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["BrigBackend", "BrigWorkspace"]

PROVIDER = "brig"


@dataclass(frozen=True)
class _Live:
    box: AsyncSandbox
    options: object


# The sandboxes of this process by the id of their ref: whoever has the ref and the same options reaches the same one.
# Models can't choose a ref, but a program may take it from a message that others wrote.
_live: dict[str, _Live] = {}


class BrigBackend(WorkspaceBackend, SupportsCommands):
    """A sandbox as a workspace. The first operation creates it, or finds the one that ``ref`` names.

    Files are what commands see: Pydantic AI reads and writes them through the shell of the sandbox, under its policy.
    A command that the policy denies has exit code 126, with the reason on stderr. No command takes longer than the
    ``timeout`` of the sandbox, and what it leaves in the background ends with it.
    """

    def __init__(self, ref: WorkspaceRef | None = None, **options: Unpack[Options]) -> None:
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"a ref of `{ref.provider}` is not one of Brig")
        self._ref = ref
        if "tools" in options and not isinstance(options["tools"], Mapping):
            # An iterator can be read once.
            options["tools"] = list(options["tools"])
        self._options = options
        self._canonical: object = None
        self._starting: asyncio.Task[AsyncSandbox] | None = None

    @property
    def ref(self) -> WorkspaceRef | None:
        """The name of the session, once there is one."""
        return self._ref

    async def working_dir(self) -> str:
        """``/workspace``."""
        await self._box()
        return "/workspace"

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> CommandResult:
        """Runs a command. Cancelling the task ends it."""
        if isinstance(command, str) != shell:
            raise TypeError("a text is for `shell=True`, a list of arguments for `shell=False`")
        validate_timeout(timeout)
        box = await self._box()
        if isinstance(command, str):
            steps = commands.shell(core(box), command, env=env, timeout=timeout)
        else:
            steps = commands.command(core(box), command, env=env, timeout=timeout)
        try:
            outcome = await adrive(steps)
        except Error as error:
            raise _unavailable(error) from error
        if outcome.killed == "destroyed":
            raise WorkspaceUnavailableError(f"the sandbox {box!r} was destroyed while a command ran in it")
        stdout, stderr = outcome.stdout.decode("utf-8", "replace"), outcome.stderr.decode("utf-8", "replace")
        if outcome.timed_out:
            raise WorkspaceTimeoutError("the command took too long and was ended", stdout=stdout, stderr=stderr)
        if outcome.truncated:
            limit = max(len(outcome.stdout), len(outcome.stderr))
            raise WorkspaceOutputLimitError(
                "the command wrote more than the `output` of the sandbox", limit=limit, stdout=stdout, stderr=stderr
            )
        return CommandResult(exit_code=outcome.exit_code, stdout=stdout, stderr=stderr)

    async def close(self) -> None:
        """Ends the sandbox. With ``state_dir`` its files are kept for the ref."""
        box = self._forget()
        if box is not None:
            await box.close()

    async def destroy(self) -> None:
        """Ends the sandbox and removes its files."""
        if self._ref is None and self._starting is None:
            return
        # Not one with other options: that is an error, and not the same as being gone.
        known = None if self._ref is None else self._reachable(self._ref)
        try:
            box = known or await self._box()
        except WorkspaceUnavailableError:
            return
        self._forget()
        await box.destroy()

    def _forget(self) -> AsyncSandbox | None:
        live = None if self._ref is None else self._reachable(self._ref)
        if live is not None:
            del _live[live.id]
        return live

    def _reachable(self, ref: WorkspaceRef) -> AsyncSandbox | None:
        """The sandbox of this process that the ref names, if it is one with these options."""
        found = _live.get(ref.id)
        if found is None:
            return None
        if found.box.status == "destroyed":
            del _live[ref.id]
            return None
        if found.options != self._compared():
            raise WorkspaceUnavailableError(f"the sandbox `{ref.id}` was made with other options, such as its policy")
        return found.box

    def _compared(self) -> object:
        # Once: a file of a policy may change later, and the sandbox has what was in it.
        if self._canonical is None:
            self._canonical = _canonical(self._options)
        return self._canonical

    async def _box(self) -> AsyncSandbox:
        """The sandbox. What creates it goes on if the caller is cancelled, and is shared by all callers."""
        live = None if self._ref is None else self._reachable(self._ref)
        if live is not None:
            return live
        if self._starting is None or (self._starting.done() and self._ref is not None):
            self._starting = asyncio.ensure_future(self._create() if self._ref is None else self._open(self._ref))
        starting = self._starting
        try:
            return await asyncio.shield(starting)
        finally:
            if starting.done() and self._starting is starting:
                self._starting = None

    async def _create(self) -> AsyncSandbox:
        options = self._compared()
        box = await AsyncSandbox(session=f"workspace-{uuid.uuid4().hex}", **self._options)
        _live[box.id] = _Live(box, options)
        self._ref = WorkspaceRef(provider=PROVIDER, id=box.id)
        return box

    async def _open(self, ref: WorkspaceRef) -> AsyncSandbox:
        if "state_dir" not in self._options:
            raise WorkspaceUnavailableError(f"there is no sandbox `{ref.id}` in this process")
        options = self._compared()
        try:
            box = await AsyncSandbox.open(ref.id, **self._options)
        except NotFound as error:
            raise WorkspaceUnavailableError(str(error)) from error
        try:
            # Another backend may have opened it meanwhile.
            live = self._reachable(ref)
        except WorkspaceUnavailableError:
            await box.close()
            raise
        if live is not None:
            await box.close()
            return live
        _live[ref.id] = _Live(box, options)
        return box


def _canonical(options: Options) -> object:
    """Options that can be compared: policies by their content, functions by what they are."""
    made = parts(options, [])
    return (
        made.setup,
        made.config,
        tuple(policy.digest for policy in made.policies),
        made.temporary,
        _functions(options.get("tools", ())),
        options.get("approve"),
        options.get("azure", {}).get("credential"),
    )


def _functions(tools: Any) -> object:
    return dict(tools) if isinstance(tools, Mapping) else list(tools)


class BrigWorkspace(AbstractCapability[Any]):
    """Gives the runs of an agent a sandbox as their workspace. Takes the options of a sandbox."""

    def __init__(self, **options: Unpack[Options]) -> None:
        super().__init__()
        self.options = options

    def get_workspace(self, ctx: RunContext[Any], *, ref: WorkspaceRef | None) -> WorkspaceBackend | None:
        """A backend for ``ref``, or for a new sandbox."""
        if ref is not None and ref.provider != PROVIDER:
            return None
        return BrigBackend(ref, **self.options)


def _unavailable(error: Error) -> Exception:
    """A sandbox that is gone, in the words of Pydantic AI; anything else as it is."""
    if isinstance(error, (Lost, NotFound)) or error.code == "session.unknown":
        return WorkspaceUnavailableError(str(error))
    return error
