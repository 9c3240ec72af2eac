"""Saved states of a session's files, with AGT's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._checkpoint import SandboxCheckpoint

if TYPE_CHECKING:
    from .._provider import BrigSandboxProvider

__all__ = ["SandboxCheckpoint", "SandboxStateManager"]


class SandboxStateManager:
    """The checkpoints of a provider."""

    def __init__(self, provider: BrigSandboxProvider) -> None:
        self._provider = provider

    def save(self, agent_id: str, session_id: str, name: str) -> SandboxCheckpoint:
        """Saves the files of the workspace under a name."""
        return self._provider.save_state(agent_id, session_id, name)

    def restore(self, agent_id: str, session_id: str, name: str, config: Any | None = None) -> None:
        """Puts the files back as they were."""
        self._provider.restore_state(agent_id, session_id, name, config)

    def list_checkpoints(self, agent_id: str) -> list[SandboxCheckpoint]:
        """Those of all sessions of the agent."""
        return self._provider.list_checkpoints(agent_id)

    def delete_checkpoint(self, agent_id: str, name: str) -> None:
        """Removes one."""
        self._provider.delete_checkpoint(agent_id, name)
