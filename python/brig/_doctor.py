"""What can be enforced here, by what, and how to fix the rest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from . import _native
from ._results import Control, _control


@dataclass(frozen=True)
class Finding:
    """One thing that a backend needs, and whether it is there."""

    what: str
    good: bool
    detail: str
    fix: str | None


@dataclass(frozen=True)
class BackendCheck:
    """One backend on this machine. ``usable``: a program was run with it."""

    name: str
    usable: bool
    problem: str | None
    code: str | None
    hint: str | None
    findings: tuple[Finding, ...]
    controls: tuple[Control, ...]


@dataclass(frozen=True)
class Doctor:
    """The answer of `doctor`. ``str()`` of it is for people to read."""

    backends: tuple[BackendCheck, ...]

    @property
    def usable(self) -> bool:
        """Whether at least one backend can run code here."""
        return any(one.usable for one in self.backends)

    def __str__(self) -> str:
        lines = []
        for one in self.backends:
            lines.append(f"{one.name}: " + ("can run code here" if one.usable else f"{one.problem}"))
            if one.hint:
                lines.append(f"  hint: {one.hint}")
            for finding in one.findings:
                if not finding.good:
                    lines.append(f"  missing: {finding.what}: {finding.detail}")
            for control in one.controls:
                lines.append(f"  {control.name:18} {control.strength:9} {control.by}")
        return "\n".join(lines)


def setup(docker_host: str | None) -> str:
    """JSON for the native module."""
    engine = {} if docker_host is None else {"host": docker_host}
    settings = {"docker": engine}
    return json.dumps(
        {"agent": "doctor", "backend": "auto", "settings": settings, "state_dir": None, "audit": None}
    )


def made(text: str) -> Doctor:
    """The answer of the native module."""

    def check(given: dict[str, Any]) -> BackendCheck:
        findings = tuple(Finding(**one) for one in given.pop("findings"))
        controls = tuple(_control(one) for one in given.pop("controls"))
        return BackendCheck(**given, findings=findings, controls=controls)

    return Doctor(tuple(check(one) for one in json.loads(text)))


def doctor(*, docker_host: str | None = None) -> Doctor:
    """Tries each backend with a small program, and says what it enforces and by what.

    >>> import brig
    >>> isinstance(brig.doctor().usable, bool)
    True
    """
    text: str = _native.doctor(setup(docker_host)).wait()
    return made(text)
