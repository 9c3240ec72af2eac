"""Providers of AGT whose backends Brig does not have."""

from __future__ import annotations

from typing import Any

from ._provider import no_session
from .sandbox_provider import ExecutionHandle, SandboxConfig, SandboxProvider, SessionHandle


class UnavailableProvider(SandboxProvider):
    """Can be constructed, and is never available."""

    _backend = ""

    def is_available(self) -> bool:
        """False."""
        return False

    @property
    def unavailable_reason(self) -> str:
        """Why, and what to use in its place."""
        return f"Brig has no {self._backend} backend; use BrigSandboxProvider or DockerSandboxProvider"

    def create_session(
        self, agent_id: str, policy: Any | None = None, config: SandboxConfig | None = None
    ) -> SessionHandle:
        """Raises RuntimeError."""
        raise RuntimeError(f"{self._backend} unavailable: {self.unavailable_reason}")

    def execute_code(
        self, agent_id: str, session_id: str, code: str, *, context: dict[str, Any] | None = None
    ) -> ExecutionHandle:
        """Raises RuntimeError: there is no session."""
        raise RuntimeError(no_session(agent_id, session_id))

    def destroy_session(self, agent_id: str, session_id: str) -> None:
        """Does nothing: there is no session."""
