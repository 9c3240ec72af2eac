"""AGT's nono provider on Brig's native backend."""

from .config import (
    NonoConfig,
    default_system_paths,
    nono_config_from_policy,
    policy_yaml_to_nono_config,
)
from .provider import NonoSandboxProvider

__all__ = [
    "NonoConfig",
    "NonoSandboxProvider",
    "default_system_paths",
    "nono_config_from_policy",
    "policy_yaml_to_nono_config",
]
