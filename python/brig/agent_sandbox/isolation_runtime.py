"""The container runtimes, with AGT's names."""

from __future__ import annotations

from enum import Enum

__all__ = ["IsolationRuntime"]


class IsolationRuntime(str, Enum):
    """What runs containers. ``AUTO`` is the strongest that works."""

    RUNC = "runc"
    GVISOR = "runsc"
    KATA = "kata-runtime"
    AUTO = "auto"
