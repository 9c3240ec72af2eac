"""Runs code of AI agents in a sandbox, under a policy, with a record of everything.

>>> import brig
>>> brig.run("print(6 * 7)").stdout
'42\\n'

A `Sandbox` keeps its files between executions; `AsyncSandbox` is the same for asyncio. An execution that ran has a
`Result`, whatever its exit code. One that a policy denied raises `Denied`.
"""

from typing import TYPE_CHECKING

from ._config import Mount, Options
from ._errors import (
    AlreadyExists,
    AuditError,
    Busy,
    CannotRun,
    Denied,
    Error,
    Failed,
    FileError,
    Forked,
    InvalidArgument,
    Lost,
    NotFound,
    PolicyInvalid,
    TimedOut,
    ToolError,
    Unavailable,
    Unenforceable,
)
from ._native import __version__
from ._policy import Decision, Explanation, Policy
from ._results import Attempt, Checkpoint, Control, FileEntry, Output, Result, Usage
from ._sandbox import Checkpoints, Execution, Files, Sandbox, run

if TYPE_CHECKING:
    from . import audit
    from ._approvals import Approval, ApprovalRequest
    from ._async import (
        AsyncCheckpoints,
        AsyncExecution,
        AsyncFiles,
        AsyncSandbox,
        adoctor,
        arun,
    )
    from ._doctor import BackendCheck, Doctor, Finding, doctor
    from ._tools import Tool
else:
    # Only programs that use these wait for their import, above all for asyncio and logging.
    _LATER = {
        "_approvals": "Approval ApprovalRequest",
        "_async": "AsyncCheckpoints AsyncExecution AsyncFiles AsyncSandbox adoctor arun",
        "_doctor": "BackendCheck Doctor Finding doctor",
        "_tools": "Tool",
        "audit": "audit",
    }

    def __getattr__(name: str):
        """Imports what was not needed before."""
        from importlib import import_module

        for module, names in _LATER.items():
            if name in names.split():
                found = import_module(f"{__name__}.{module}")
                made = globals()[name] = found if name == module else getattr(found, name)
                return made
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AlreadyExists",
    "Approval",
    "ApprovalRequest",
    "AsyncCheckpoints",
    "AsyncExecution",
    "AsyncFiles",
    "AsyncSandbox",
    "Attempt",
    "AuditError",
    "BackendCheck",
    "Busy",
    "CannotRun",
    "Checkpoint",
    "Checkpoints",
    "Control",
    "Decision",
    "Denied",
    "Doctor",
    "Error",
    "Execution",
    "Explanation",
    "Failed",
    "FileEntry",
    "FileError",
    "Files",
    "Finding",
    "Forked",
    "InvalidArgument",
    "Lost",
    "Mount",
    "NotFound",
    "Options",
    "Output",
    "Policy",
    "PolicyInvalid",
    "Result",
    "Sandbox",
    "TimedOut",
    "Tool",
    "ToolError",
    "Unavailable",
    "Unenforceable",
    "Usage",
    "__version__",
    "adoctor",
    "arun",
    "audit",
    "doctor",
    "run",
]
