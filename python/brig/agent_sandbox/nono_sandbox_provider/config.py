"""The config of AGT's nono provider."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from typing import Any

from .. import _policy_file
from .._hardening import sanitize_env_vars, validate_mount_path

__all__ = [
    "NonoConfig",
    "default_system_paths",
    "nono_config_from_policy",
    "policy_yaml_to_nono_config",
]


def default_system_paths() -> list[str]:
    """The directories of this machine that an interpreter needs. Brig shows its own selection of them."""
    paths = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", sys.prefix, sys.base_prefix)
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


@dataclass
class NonoConfig:
    """What a session may read, write and reach."""

    readonly_paths: list[str] = field(default_factory=list)
    readwrite_paths: list[str] = field(default_factory=list)
    allow_outbound: bool = False
    allowed_hosts: list[str] = field(default_factory=list)
    allow_unrestricted_egress: bool = False
    timeout_seconds: float = 60.0
    env_vars: dict[str, str] = field(default_factory=dict)
    include_system_paths: bool = True

    def __post_init__(self) -> None:
        if self.timeout_seconds <= 0:
            raise ValueError("timeout_seconds must be positive")
        if self.allow_outbound and not self.allowed_hosts and not self.allow_unrestricted_egress:
            raise ValueError(
                "Outbound network is enabled (allow_outbound=True) without a host allowlist. Refusing to grant "
                "unrestricted egress by default. Provide allowed_hosts to restrict egress, or set "
                "allow_unrestricted_egress=True (for example via a policy 'defaults.network_default: allow') to "
                "opt in explicitly."
            )

    def sanitized_env(self) -> dict[str, str]:
        """The variables without those that change what programs load when they start."""
        return sanitize_env_vars(self.env_vars)

    @classmethod
    def from_sandbox_config(cls, cfg: Any, *, include_system_paths: bool = True) -> NonoConfig:
        """The directories, the network and the time limit of a config."""
        paths: dict[str, list[str]] = {}
        for name in ("input_dir", "output_dir"):
            value = getattr(cfg, name, None)
            paths[name] = [str(value)] if value else []
            if value:
                validate_mount_path(str(value), name)
        network = bool(getattr(cfg, "network_enabled", False))
        return cls(
            readonly_paths=paths["input_dir"],
            readwrite_paths=paths["output_dir"],
            allow_outbound=network,
            allow_unrestricted_egress=network,
            timeout_seconds=max(0.001, float(getattr(cfg, "timeout_seconds", 60.0))),
            env_vars=dict(getattr(cfg, "env_vars", None) or {}),
            include_system_paths=include_system_paths,
        )


def _check(policy: Any) -> None:
    """Policies are often objects that nothing has checked."""
    hosts = getattr(policy, "network_allowlist", None)
    if hosts is not None and not isinstance(hosts, list):
        raise TypeError(
            f"policy.network_allowlist must be a list of host patterns, got {type(hosts).__name__}"
        )
    for at, host in enumerate(hosts or ()):
        if not isinstance(host, str) or not host.strip():
            raise ValueError(
                f"policy.network_allowlist entries must be non-empty strings; entry {at} is {host!r}"
            )
    for part, name, kinds, said in (
        ("defaults", "timeout_seconds", (int, float), "a number"),
        ("defaults", "network_default", (str,), "a string"),
        ("defaults", "max_memory_mb", (int,), "an int"),
        ("defaults", "max_cpu", (int, float), "a number"),
        ("sandbox_mounts", "input_dir", (str,), "a string"),
        ("sandbox_mounts", "output_dir", (str,), "a string"),
    ):
        value = getattr(getattr(policy, part, None), name, None)
        if value is not None and not isinstance(value, kinds):
            raise TypeError(f"policy.{part}.{name} must be {said}, got {type(value).__name__}")
    seconds = getattr(getattr(policy, "defaults", None), "timeout_seconds", None)
    if seconds is not None and seconds <= 0:
        raise ValueError(f"policy.defaults.timeout_seconds must be positive, got {seconds}")


def nono_config_from_policy(policy: Any, base: NonoConfig | None = None) -> NonoConfig:
    """A config with the limits, mounts and hosts of a policy. What the policy does not set stays as it is.

    Raises TypeError or ValueError if a field of the policy is not what it must be.
    """
    _check(policy)
    config = replace(base) if base is not None else NonoConfig()
    changes: dict[str, Any] = {
        "readonly_paths": list(config.readonly_paths),
        "readwrite_paths": list(config.readwrite_paths),
        "allowed_hosts": list(config.allowed_hosts),
        "env_vars": dict(config.env_vars),
    }
    defaults = getattr(policy, "defaults", None)
    seconds = getattr(defaults, "timeout_seconds", None)
    if seconds is not None:
        changes["timeout_seconds"] = float(seconds)
    mounts = getattr(policy, "sandbox_mounts", None)
    for name, key in (("input_dir", "readonly_paths"), ("output_dir", "readwrite_paths")):
        value = getattr(mounts, name, None)
        if value and str(value) not in changes[key]:
            validate_mount_path(str(value), name)
            changes[key].append(str(value))
    hosts = getattr(policy, "network_allowlist", None) or []
    for host in hosts:
        if host not in changes["allowed_hosts"]:
            changes["allowed_hosts"].append(host)
    if hosts:
        changes["allow_outbound"] = True
    elif getattr(defaults, "network_default", "deny") == "allow":
        changes["allow_outbound"] = changes["allow_unrestricted_egress"] = True
    return replace(config, **changes)


def policy_yaml_to_nono_config(yaml_path: str, *, base: NonoConfig | None = None) -> NonoConfig:
    """`nono_config_from_policy` of a policy file."""
    return nono_config_from_policy(_policy_file.read(yaml_path), base)
