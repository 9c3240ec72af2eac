"""AGT's MXC provider, which Brig has no backend for."""

from .config import (
    MxcConfig,
    backend_requires_experimental,
    mxc_config_from_policy,
    policy_to_mxc_json,
    policy_yaml_to_mxc_json,
)
from .provider import MxcSandboxProvider

__all__ = [
    "MxcConfig",
    "MxcSandboxProvider",
    "backend_requires_experimental",
    "mxc_config_from_policy",
    "policy_to_mxc_json",
    "policy_yaml_to_mxc_json",
]
