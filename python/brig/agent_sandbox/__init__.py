"""The interface of AGT's ``agent_sandbox``, on Brig: change the import, keep the program.

Where AGT is unsafe, Brig's behaviour holds; the guide *From AGT to Brig* lists the differences.
"""

from .. import __version__
from ._provider import BrigSandboxProvider
from .aca_sandbox_provider import ACASandboxProvider
from .docker_provider import DockerSandboxProvider, SandboxCheckpoint, SandboxStateManager
from .hyperlight_provider import (
    HyperlightBackend,
    HyperlightConfig,
    HyperLightSandboxProvider,
    SnapshotHandle,
    hyperlight_config_from_policy,
)
from .isolation_runtime import IsolationRuntime
from .mxc_sandbox_provider import MxcConfig, MxcSandboxProvider, mxc_config_from_policy
from .nono_sandbox_provider import NonoConfig, NonoSandboxProvider, nono_config_from_policy
from .sandbox_provider import (
    ExecutionHandle,
    ExecutionStatus,
    SandboxConfig,
    SandboxProvider,
    SandboxResult,
    SessionHandle,
    SessionStatus,
)

__author__ = "The Brig authors"

__all__ = [
    "ACASandboxProvider",
    "BrigSandboxProvider",
    "DockerSandboxProvider",
    "ExecutionHandle",
    "ExecutionStatus",
    "HyperLightSandboxProvider",
    "HyperlightBackend",
    "HyperlightConfig",
    "IsolationRuntime",
    "MxcConfig",
    "MxcSandboxProvider",
    "NonoConfig",
    "NonoSandboxProvider",
    "SandboxCheckpoint",
    "SandboxConfig",
    "SandboxProvider",
    "SandboxResult",
    "SandboxStateManager",
    "SessionHandle",
    "SessionStatus",
    "SnapshotHandle",
    "__version__",
    "hyperlight_config_from_policy",
    "mxc_config_from_policy",
    "nono_config_from_policy",
]
