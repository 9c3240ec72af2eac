"""Finds calls in Python code that start processes. Advice, not a boundary: the sandbox is the boundary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import _native

__all__ = [
    "CodeScanViolation",
    "SandboxCodeViolation",
    "enforce_no_subprocess_execution",
    "scan_code_for_subprocesses",
]


@dataclass(frozen=True)
class CodeScanViolation:
    """One finding. ``column`` counts from 0."""

    line: int
    column: int
    pattern: str
    message: str


class SandboxCodeViolation(PermissionError):
    """The code was not run, because it may start processes."""

    def __init__(self, violations: Sequence[CodeScanViolation]) -> None:
        self.violations = tuple(violations)
        shown = [f"line {one.line}:{one.column + 1} {one.pattern}" for one in self.violations[:3]]
        if len(self.violations) > 3:
            shown.append(f"+{len(self.violations) - 3} more")
        super().__init__(
            f"Sandbox code denied: potential subprocess execution ({'; '.join(shown)})"
        )


def scan_code_for_subprocesses(code: str) -> list[CodeScanViolation]:
    """All findings, in the order of the code. None in code that can't be parsed: it will not run either."""
    findings, _ = _native.scan_python(code.encode("utf-8", "replace"))
    return [CodeScanViolation(line, column - 1, *rest) for line, column, *rest in findings]


def enforce_no_subprocess_execution(code: str) -> None:
    """Raises `SandboxCodeViolation` if there is a finding."""
    violations = scan_code_for_subprocesses(code)
    if violations:
        raise SandboxCodeViolation(violations)
