"""AGT's MXC provider, which Brig has no backend for."""

from __future__ import annotations

from typing import Any

from .._unavailable import UnavailableProvider
from ..sandbox_provider import ExecutionHandle, SandboxConfig, SandboxResult
from .config import MxcConfig

__all__ = ["MxcSandboxProvider"]


class MxcSandboxProvider(UnavailableProvider):
    """Can be constructed, and is never available. The program of MXC is not looked for."""

    _backend = "MXC"

    def __init__(
        self,
        binary_path: str | None = None,
        *,
        backend: str | None = None,
        experimental: bool = False,
        interpreter: str = "python3",
        debug: bool = False,
    ) -> None:
        self._asked = MxcConfig(backend=backend, experimental=experimental).backend

    @property
    def binary_path(self) -> str | None:
        """None: it is not run."""
        return None

    @property
    def backend(self) -> str | None:
        """The backend of MXC that was asked for."""
        return self._asked

    def run(
        self,
        agent_id: str,
        command: list[str],
        config: SandboxConfig | None = None,
        *,
        session_id: str | None = None,
    ) -> SandboxResult:
        """A failure that says why."""
        return SandboxResult(success=False, exit_code=-1, stderr=self.unavailable_reason)

    def run_once(
        self,
        agent_id: str,
        code: str,
        *,
        policy: Any | None = None,
        config: SandboxConfig | None = None,
        context: dict[str, Any] | None = None,
    ) -> ExecutionHandle:
        """Raises RuntimeError."""
        handle = self.create_session(agent_id, policy, config)
        return self.execute_code(agent_id, handle.session_id, code, context=context)

    async def run_once_async(
        self,
        agent_id: str,
        code: str,
        *,
        policy: Any | None = None,
        config: SandboxConfig | None = None,
        context: dict[str, Any] | None = None,
    ) -> ExecutionHandle:
        """Raises RuntimeError."""
        return self.run_once(agent_id, code, policy=policy, config=config, context=context)
