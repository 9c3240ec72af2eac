"""The interface of providers, with AGT's names, fields, order and defaults."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = [
    "ExecutionHandle",
    "ExecutionStatus",
    "SandboxConfig",
    "SandboxProvider",
    "SandboxResult",
    "SessionHandle",
    "SessionStatus",
]


class SessionStatus(str, Enum):
    """The state of a session."""

    PROVISIONING = "provisioning"
    READY = "ready"
    EXECUTING = "executing"
    DESTROYING = "destroying"
    DESTROYED = "destroyed"
    FAILED = "failed"


class ExecutionStatus(str, Enum):
    """The state of an execution."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass
class SandboxConfig:
    """What a session is created with."""

    timeout_seconds: float = 60.0
    memory_mb: int = 512
    cpu_limit: float = 1.0
    network_enabled: bool = False
    read_only_fs: bool = True
    env_vars: dict[str, str] = field(default_factory=dict)
    input_dir: str | None = None
    output_dir: str | None = None
    runtime: str | None = None
    output_max_bytes: int = 1_048_576
    ring: Any = None


@dataclass
class SandboxResult:
    """How an execution ended."""

    success: bool
    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    duration_seconds: float = 0.0
    killed: bool = False
    kill_reason: str = ""


@dataclass
class SessionHandle:
    """Names a session."""

    agent_id: str
    session_id: str
    status: SessionStatus = SessionStatus.READY


@dataclass
class ExecutionHandle:
    """Names an execution, with its result."""

    execution_id: str
    agent_id: str
    session_id: str
    status: ExecutionStatus = ExecutionStatus.COMPLETED
    result: SandboxResult | None = None


class SandboxProvider(ABC):
    """What every provider offers."""

    @abstractmethod
    def create_session(
        self, agent_id: str, policy: Any | None = None, config: SandboxConfig | None = None
    ) -> SessionHandle:
        """Creates a session, under a policy if one is given."""

    @abstractmethod
    def execute_code(
        self, agent_id: str, session_id: str, code: str, *, context: dict[str, Any] | None = None
    ) -> ExecutionHandle:
        """Runs code in a session, if its policy allows it."""

    @abstractmethod
    def destroy_session(self, agent_id: str, session_id: str) -> None:
        """Ends a session. Does nothing if there is none."""

    @abstractmethod
    def is_available(self) -> bool:
        """Whether sessions can be created."""

    def run(
        self, agent_id: str, command: list[str], config: SandboxConfig | None = None
    ) -> SandboxResult:
        """Runs a command in a session of the agent."""
        raise NotImplementedError(
            f"{type(self).__name__}.run() is not implemented; this provider does not support raw command execution"
        )

    def get_session_status(self, agent_id: str, session_id: str) -> SessionStatus:
        """The state of a session."""
        return SessionStatus.DESTROYED

    def get_execution_status(
        self, agent_id: str, session_id: str, execution_id: str
    ) -> ExecutionHandle:
        """The state of an execution."""
        return ExecutionHandle(execution_id, agent_id, session_id, ExecutionStatus.COMPLETED)

    def cancel_execution(self, agent_id: str, session_id: str, execution_id: str) -> bool:
        """Ends an execution. False if it does not run."""
        return False

    async def create_session_async(
        self, agent_id: str, policy: Any | None = None, config: SandboxConfig | None = None
    ) -> SessionHandle:
        """`create_session` for asyncio."""
        return await asyncio.to_thread(self.create_session, agent_id, policy, config)

    async def execute_code_async(
        self, agent_id: str, session_id: str, code: str, *, context: dict[str, Any] | None = None
    ) -> ExecutionHandle:
        """`execute_code` for asyncio."""
        return await asyncio.to_thread(
            self.execute_code, agent_id, session_id, code, context=context
        )

    async def destroy_session_async(self, agent_id: str, session_id: str) -> None:
        """`destroy_session` for asyncio."""
        await asyncio.to_thread(self.destroy_session, agent_id, session_id)

    async def cancel_execution_async(
        self, agent_id: str, session_id: str, execution_id: str
    ) -> bool:
        """`cancel_execution` for asyncio."""
        return await asyncio.to_thread(self.cancel_execution, agent_id, session_id, execution_id)
