"""AGT's nono provider on Brig's native backend."""

from __future__ import annotations

import os

from ..._config import Options
from .._provider import BrigSandboxProvider

__all__ = ["NonoSandboxProvider"]


class NonoSandboxProvider(BrigSandboxProvider):
    """Sessions of Linux namespaces, without a daemon. Nothing of nono is needed."""

    def __init__(self, *, interpreter: str = "python3", include_system_paths: bool = True) -> None:
        if not include_system_paths:
            raise ValueError("include_system_paths: an interpreter does not start without them")
        options: Options = {}
        if os.path.isabs(interpreter):
            options["python"] = interpreter
        elif interpreter not in ("python", "python3"):
            raise ValueError(f"interpreter: {interpreter!r} is neither python, python3 nor an absolute path")
        super().__init__("native", options=options)

    def _unavailable_message(self) -> str:
        return f"nono sandbox unavailable: {self._unavailable}"
