"""A saved state, with AGT's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone


@dataclass
class SandboxCheckpoint:
    """A saved state. ``image_tag`` only names it: Brig saves the files of the workspace, not an image."""

    agent_id: str
    name: str
    image_tag: str
    created_at: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat())
