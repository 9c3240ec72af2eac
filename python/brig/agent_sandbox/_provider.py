"""What all providers that run on Brig have in common."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal

from .. import _errors, _native
from .._async import _finish, _take, operate
from .._config import Mount, Options
from .._core import Core, Request, Step, receipts_of
from .._policy import Policy, explain, of_object, policies_of
from .._results import Checkpoint, Result
from ._checkpoint import SandboxCheckpoint
from ._hardening import sanitize_env_vars, validate_mount_path, validate_resource_name
from ._policy_object import plain
from ._receipts import entry
from .code_scanner import enforce_no_subprocess_execution
from .sandbox_provider import (
    ExecutionHandle,
    ExecutionStatus,
    SandboxConfig,
    SandboxProvider,
    SandboxResult,
    SessionHandle,
    SessionStatus,
)

_DEFAULTS = SandboxConfig()
_RUNTIMES = {"runsc": "gvisor", "kata-runtime": "kata"}
# So many receipts of a provider are kept in memory.
_KEPT = 65_536
# Facts that Brig states itself.
_OWN = ("agent_id", "action", "code")


@dataclasses.dataclass
class _Session:
    core: Core
    config: SandboxConfig
    policies: list[Policy]


class BrigSandboxProvider(SandboxProvider):
    """AGT's interface on Brig: ``backend`` is ``native``, ``docker``, ``aca`` or ``auto``.

    ``options`` are those of `brig.Sandbox`, for every session. A policy given to `create_session` holds together
    with those.
    """

    def __init__(
        self,
        backend: Literal["auto", "native", "docker", "aca"] = "auto",
        *,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        options: Options | None = None,
    ) -> None:
        self._options: Options = {"backend": backend, **(options or {})}
        self._tools = dict(tools or {})
        self._lock = threading.Lock()
        self._sessions: dict[tuple[str, str], _Session] = {}
        # Of all sessions, also of those that have ended.
        self._receipts = _native.Receipts(_KEPT)
        self._checked = False
        self._unavailable: str | None = None

    # Whether it can be used.

    def _check(self, image: str | None = None) -> Step[Any]:
        probe: Options = {**self._options, "tools": (), "policy": None}
        if image is not None:
            probe["image"] = image
        core = Core(probe, None)
        request = Request.of(["true"], "", (), None, None, None, None, None, None)
        return Step(core.sandbox.run_once(*request.arguments), lambda report: report)

    def _available(self) -> bool:
        if not self._checked:
            try:
                self._check().wait()
            except _errors.Error as error:
                self._unavailable = str(error)
            self._checked = True
        return self._unavailable is None

    def is_available(self) -> bool:
        """Whether a program could be run with it. Tried once."""
        return self._available()

    @property
    def unavailable_reason(self) -> str | None:
        """Why it can't be used."""
        self._available()
        return self._unavailable

    def _unavailable_message(self) -> str:
        return f"Brig is not available: {self._unavailable}"

    # Sessions.

    def _prepare(self, agent_id: str, policy: Any, config: SandboxConfig | None) -> _Session:
        if not self._available():
            raise RuntimeError(self._unavailable_message())
        validate_resource_name(agent_id, "agent_id")
        config = dataclasses.replace(config) if config is not None else SandboxConfig()
        if config.ring is not None:
            raise ValueError("ring: Brig has no rings; limit the session with its policy")
        policies = policies_of(self._options.get("policy"))
        if policy is not None:
            policies.append(_policy(policy))
        options: Options = {**self._options, "agent": agent_id, **self._limits(config)}
        if config.network_enabled and not policies:
            # As in AGT: every public host. Each connection is recorded.
            policies.append(Policy({"defaults": {"action": "allow", "network_default": "allow"}}))
        options["policy"] = policies
        listed = {name for one in policies for name in one.tools}
        if self._tools:
            options["tools"] = {name: one for name, one in self._tools.items() if name in listed}
        elif listed:
            # None is registered, so none can be called. This is recorded.
            options["waive"] = [*options.get("waive", ()), "tools"]
        try:
            core = Core(options, uuid.uuid4().hex[:8], store=self._receipts)
        except _errors.InvalidArgument as error:
            raise ValueError(str(error)) from error
        return _Session(core, config, policies)

    def _limits(self, config: SandboxConfig) -> Options:
        options: Options = {"timeout": config.timeout_seconds, "output": config.output_max_bytes}
        # AGT's defaults are Brig's: nobody asked for them.
        if config.memory_mb != _DEFAULTS.memory_mb:
            options["memory"] = config.memory_mb << 20
        if config.cpu_limit != _DEFAULTS.cpu_limit:
            options["cpus"] = config.cpu_limit
        if not config.read_only_fs:
            options["writable_root"] = True
            if self._options.get("backend") == "docker":
                # Nothing limits what is written there, as in AGT. This is recorded.
                options["waive"] = [*self._options.get("waive", ()), "disk"]
        options["env"] = sanitize_env_vars(config.env_vars)
        mounts = list(self._options.get("mounts", ()))
        if config.input_dir is not None:
            validate_mount_path(config.input_dir, "input_dir")
            mounts.append(Mount(config.input_dir, "/input"))
        if config.output_dir is not None:
            validate_mount_path(config.output_dir, "output_dir")
            mounts.append(Mount(config.output_dir, "/output", writable=True))
        options["mounts"] = mounts
        if config.runtime is not None:
            options["runtime"] = _RUNTIMES.get(config.runtime, config.runtime)
        return options

    def _created(self, agent_id: str, session: _Session) -> SessionHandle:
        session_id = session.core.session.id
        with self._lock:
            self._sessions[agent_id, session_id] = session
        return SessionHandle(agent_id, session_id, SessionStatus.READY)

    def create_session(
        self, agent_id: str, policy: Any | None = None, config: SandboxConfig | None = None
    ) -> SessionHandle:
        """Creates a session. What its policy and config ask for is enforced, or there is no session."""
        session = self._prepare(agent_id, policy, config)
        try:
            session.core.start().wait()
        except _errors.InvalidArgument as error:
            raise ValueError(str(error)) from error
        except _errors.Error as error:
            raise RuntimeError(str(error)) from error
        return self._created(agent_id, session)

    async def create_session_async(
        self, agent_id: str, policy: Any | None = None, config: SandboxConfig | None = None
    ) -> SessionHandle:
        """`create_session` for asyncio."""
        session = await asyncio.to_thread(self._prepare, agent_id, policy, config)
        try:
            await _take(session.core.start())
        except asyncio.CancelledError:
            await operate(session.core.sandbox.abandon())
            raise
        except _errors.InvalidArgument as error:
            raise ValueError(str(error)) from error
        except _errors.Error as error:
            raise RuntimeError(str(error)) from error
        return self._created(agent_id, session)

    def _take_out(self, agent_id: str, session_id: str) -> Step[None] | None:
        with self._lock:
            session = self._sessions.pop((agent_id, session_id), None)
        if session is None:
            return None
        return session.core.end(keep=False)

    def destroy_session(self, agent_id: str, session_id: str) -> None:
        """Ends a session with everything that runs in it. Does nothing if there is none."""
        step = self._take_out(agent_id, session_id)
        if step is not None:
            step.wait()

    async def destroy_session_async(self, agent_id: str, session_id: str) -> None:
        """`destroy_session` for asyncio."""
        step = self._take_out(agent_id, session_id)
        if step is not None:
            await _finish(step)

    def get_session_status(self, agent_id: str, session_id: str) -> SessionStatus:
        """The state of a session; destroyed if there is none."""
        session = self._sessions.get((agent_id, session_id))
        if session is None:
            return SessionStatus.DESTROYED
        return SessionStatus(session.core.session.status)

    # Executions.

    def _request(
        self, agent_id: str, session_id: str, code: str, context: dict[str, Any] | None
    ) -> tuple[_Session, Request]:
        """The order is AGT's: the session, the policy, the scan."""
        session = self._sessions.get((agent_id, session_id))
        if session is None:
            raise RuntimeError(no_session(agent_id, session_id))
        facts = dict(context or {})
        for name, own in zip(_OWN, (agent_id, "execute", code), strict=True):
            if facts.pop(name, own) != own:
                raise ValueError(f"context: {name!r} is stated by Brig and can't be replaced")
        request = Request.of(code, "python", (), None, None, None, None, None, facts)
        # What the policy denies is not scanned: the denial is the answer, and is recorded.
        if not session.policies or _may_run(session.policies, code, agent_id, facts):
            enforce_no_subprocess_execution(code)
        return session, request

    def _handle(self, agent_id: str, session_id: str, result: SandboxResult, id: str) -> ExecutionHandle:
        status = ExecutionStatus.COMPLETED if result.success else ExecutionStatus.FAILED
        return ExecutionHandle(id, agent_id, session_id, status, result)

    def execute_code(
        self, agent_id: str, session_id: str, code: str, *, context: dict[str, Any] | None = None
    ) -> ExecutionHandle:
        """Runs code, if the policy allows it and the scan finds nothing. ``context`` adds facts for the policy."""
        session, request = self._request(agent_id, session_id, code, context)
        try:
            found = session.core.run(request).wait()
        except _errors.Error as error:
            return self._failed(agent_id, session_id, session, error)
        return self._handle(agent_id, session_id, _result(found), found.execution_id)

    async def execute_code_async(
        self, agent_id: str, session_id: str, code: str, *, context: dict[str, Any] | None = None
    ) -> ExecutionHandle:
        """`execute_code` for asyncio. Cancelling the task ends the execution."""
        session, request = self._request(agent_id, session_id, code, context)
        try:
            found = await _take(session.core.run(request))
        except _errors.Error as error:
            return self._failed(agent_id, session_id, session, error)
        return self._handle(agent_id, session_id, _result(found), found.execution_id)

    def _failed(
        self, agent_id: str, session_id: str, session: _Session, error: _errors.Error
    ) -> ExecutionHandle:
        result, id = _of_error(error, session.config), uuid.uuid4().hex[:8]
        if isinstance(error, _errors.TimedOut):
            id = error.result.execution_id
        return self._handle(agent_id, session_id, result, id)

    def run(
        self,
        agent_id: str,
        command: list[str],
        config: SandboxConfig | None = None,
        *,
        session_id: str | None = None,
    ) -> SandboxResult:
        """Runs a command in a session of the agent. Unlike in AGT the policy decides on it.

        Of ``config`` only the time limit and the variables count: the rest is the session's.
        """
        with self._lock:
            own = {key[1]: one for key, one in self._sessions.items() if key[0] == agent_id}
        session = own.get(session_id) if session_id is not None else next(iter(own.values()), None)
        if session is None:
            return SandboxResult(
                success=False, exit_code=-1, stderr=f"No container found for agent '{agent_id}'"
            )
        env, timeout = None, None
        if config is not None:
            env, timeout = sanitize_env_vars(config.env_vars), config.timeout_seconds
        request = Request.of(list(command), "", (), None, env, None, timeout, None, None)
        try:
            return _result(session.core.run(request).wait())
        except _errors.Error as error:
            return _of_error(error, config or session.config)

    def get_execution_status(
        self, agent_id: str, session_id: str, execution_id: str
    ) -> ExecutionHandle:
        """The state of an execution. One that nobody knows has failed."""
        session = self._sessions.get((agent_id, session_id))
        known = None if session is None else session.core.session.execution_status(execution_id)
        status = ExecutionStatus.FAILED if known is None else ExecutionStatus(known)
        return ExecutionHandle(execution_id, agent_id, session_id, status)

    def cancel_execution(self, agent_id: str, session_id: str, execution_id: str) -> bool:
        """Ends an execution. False if it does not run."""
        session = self._sessions.get((agent_id, session_id))
        return session is not None and session.core.session.cancel(execution_id)

    def run_once(
        self,
        agent_id: str,
        code: str,
        *,
        policy: Any | None = None,
        config: SandboxConfig | None = None,
        context: dict[str, Any] | None = None,
    ) -> ExecutionHandle:
        """Creates a session, runs code in it, and destroys it."""
        handle = self.create_session(agent_id, policy, config)
        try:
            return self.execute_code(agent_id, handle.session_id, code, context=context)
        finally:
            self.destroy_session(agent_id, handle.session_id)

    async def run_once_async(
        self,
        agent_id: str,
        code: str,
        *,
        policy: Any | None = None,
        config: SandboxConfig | None = None,
        context: dict[str, Any] | None = None,
    ) -> ExecutionHandle:
        """`run_once` for asyncio."""
        handle = await self.create_session_async(agent_id, policy, config)
        try:
            return await self.execute_code_async(agent_id, handle.session_id, code, context=context)
        finally:
            await self.destroy_session_async(agent_id, handle.session_id)

    # Checkpoints.

    def _core(self, agent_id: str, session_id: str) -> Core:
        session = self._sessions.get((agent_id, session_id))
        if session is None:
            raise RuntimeError(f"No active container for agent '{agent_id}', session '{session_id}'")
        return session.core

    def save_state(self, agent_id: str, session_id: str, name: str) -> SandboxCheckpoint:
        """Saves the files of the workspace under a name."""
        validate_resource_name(name, "checkpoint name")
        try:
            saved = self._core(agent_id, session_id).save(name).wait()
        except _errors.Error as error:
            raise RuntimeError(str(error)) from error
        return _checkpoint(agent_id, saved)

    def restore_state(
        self, agent_id: str, session_id: str, name: str, config: SandboxConfig | None = None
    ) -> None:
        """Puts the files back. The session keeps its config and its policy; AGT's loses the config."""
        validate_resource_name(name, "checkpoint name")
        core = self._core(agent_id, session_id)
        if config is not None and config != self._sessions[agent_id, session_id].config:
            raise ValueError("config: a session keeps its config; create another one to change it")
        try:
            core.restore(name).wait()
        except _errors.NotFound as error:
            tag = _tag(agent_id, name)
            raise RuntimeError(f"Checkpoint image '{tag}' not found for agent '{agent_id}'") from error
        except _errors.Error as error:
            raise RuntimeError(str(error)) from error

    def list_checkpoints(self, agent_id: str) -> list[SandboxCheckpoint]:
        """Those of all sessions of the agent."""
        cores = [one.core for key, one in list(self._sessions.items()) if key[0] == agent_id]
        return [_checkpoint(agent_id, saved) for core in cores for saved in core.checkpoints().wait()]

    def delete_checkpoint(self, agent_id: str, name: str) -> None:
        """Removes it from every session of the agent that has it."""
        validate_resource_name(name, "checkpoint name")
        tag, found = _tag(agent_id, name), False
        for key, session in list(self._sessions.items()):
            if key[0] != agent_id:
                continue
            try:
                session.core.delete(name).wait()
                found = True
            except _errors.NotFound:
                continue
        if not found:
            raise RuntimeError(f"Failed to delete checkpoint '{tag}': no such checkpoint")

    # Evidence.

    def receipts(self) -> list[dict[str, Any]]:
        """One for each execution, those that the policy denied included: what AGT's ``AuditEntry`` is made of.

        Code in which the scan finds something never becomes an execution: it has the exception
        `SandboxCodeViolation`, and no receipt.

        ``MerkleAuditChain().add_entry(AuditEntry(**receipt))`` takes them. The newest 65,536 are kept in memory; a
        `RuntimeWarning` says how many there were before. With the option ``audit`` these are read from the log.
        """
        return [entry(record) for record in receipts_of(self._receipts, None)]

    def close(self) -> None:
        """Destroys all sessions."""
        for agent_id, session_id in list(self._sessions):
            self.destroy_session(agent_id, session_id)

    def __enter__(self) -> BrigSandboxProvider:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _may_run(policies: list[Policy], code: str, agent_id: str, facts: dict[str, Any]) -> bool:
    decision = explain(policies, code, None, None, "python", agent_id, facts).decision
    return decision.allowed or decision.needs_approval


def _policy(given: Any) -> Policy:
    """A policy of AGT, or of Brig."""
    if isinstance(given, (Policy, Mapping, str)) or hasattr(given, "model_dump") or hasattr(given, "__fspath__"):
        return Policy(given)
    return of_object({"name": "policy", **plain(given)})


def _result(result: Result) -> SandboxResult:
    killed = result.killed or ""
    return SandboxResult(
        success=result.ok,
        exit_code=result.exit_code,
        stdout=result.stdout,
        stderr=result.stderr,
        duration_seconds=round(result.duration, 3),
        killed=bool(killed),
        kill_reason=killed,
    )


def _of_error(error: _errors.Error, config: SandboxConfig) -> SandboxResult:
    """What is an answer in AGT, and not an exception. A denial is one."""
    if isinstance(error, _errors.Denied):
        raise _errors.Denied(
            f"Policy denied: {error.reason}", code=error.code, rule=error.rule
        ) from error
    if isinstance(error, _errors.TimedOut):
        limit = error.result.to_dict()["result"]["kill_detail"]["limit_ms"] / 1000
        seconds = config.timeout_seconds if limit == config.timeout_seconds else limit
        reason = f"Execution exceeded timeout of {seconds}s"
        return dataclasses.replace(_result(error.result), kill_reason=reason)
    exit_code = error.exit_code if isinstance(error, _errors.CannotRun) else -1
    return SandboxResult(success=False, exit_code=exit_code, stderr=str(error))


def no_session(agent_id: str, session_id: str) -> str:
    """AGT's message."""
    return (
        f"No active session for agent '{agent_id}' with session_id '{session_id}'. "
        "Call create_session() first."
    )


def _tag(agent_id: str, name: str) -> str:
    return f"agent-sandbox-{agent_id}:{name}"


def _checkpoint(agent_id: str, saved: Checkpoint) -> SandboxCheckpoint:
    return SandboxCheckpoint(agent_id, saved.name, _tag(agent_id, saved.name), saved.created.isoformat())
