"""AGT's Hyperlight provider, which Brig has no backend for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .._provider import no_session
from .._unavailable import UnavailableProvider
from .config import HyperlightConfig

__all__ = ["HyperLightSandboxProvider", "HyperlightBackend", "SnapshotHandle"]


class HyperlightBackend(str, Enum):
    """The kinds of micro VMs."""

    WASM = "wasm"
    HYPERLIGHTJS = "hyperlightjs"
    NANVIX = "nanvix"


@dataclass
class SnapshotHandle:
    """Names a snapshot."""

    snapshot_id: str
    agent_id: str
    session_id: str


class HyperLightSandboxProvider(UnavailableProvider):
    """Can be constructed, and is never available."""

    _backend = "hyperlight-sandbox"

    def __init__(
        self,
        backend: str | HyperlightBackend = "wasm",
        module: str | None = "python_guest",
        tools: Mapping[str, Callable[..., Any]] | None = None,
        *,
        sandbox_module: str = "hyperlight_sandbox",
    ) -> None:
        name = backend.value if isinstance(backend, HyperlightBackend) else backend
        self._config = HyperlightConfig(backend=name, module=module)

    def snapshot_session(self, agent_id: str, session_id: str) -> SnapshotHandle:
        """Raises RuntimeError: there is no session."""
        raise RuntimeError(no_session(agent_id, session_id))

    def restore_snapshot(self, agent_id: str, session_id: str, snapshot_id: str) -> None:
        """Raises RuntimeError: there is no session."""
        raise RuntimeError(no_session(agent_id, session_id))

    @property
    def backend(self) -> str:
        """The kind that was asked for."""
        return self._config.backend

    @property
    def module(self) -> str | None:
        """The guest that was asked for."""
        return self._config.module
