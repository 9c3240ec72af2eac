"""The config of AGT's MXC provider."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from .. import _policy_file
from .._hardening import sanitize_env_vars
from ..nono_sandbox_provider.config import NonoConfig, nono_config_from_policy

__all__ = [
    "MxcConfig",
    "backend_requires_experimental",
    "mxc_config_from_policy",
    "policy_to_mxc_json",
    "policy_yaml_to_mxc_json",
]

DEFAULT_SCHEMA_VERSION = "0.6.0-alpha"
_STABLE = frozenset("processcontainer bubblewrap lxc".split())
_EXPERIMENTAL = frozenset(
    "windows_sandbox wslc microvm seatbelt isolation_session hyperlight".split()
)


def backend_requires_experimental(backend: str | None) -> bool:
    """Whether MXC runs that backend only with ``--experimental``."""
    return backend in _EXPERIMENTAL


@dataclass
class MxcConfig:
    """What a container may read, write and reach."""

    version: str = DEFAULT_SCHEMA_VERSION
    backend: str | None = None
    readonly_paths: list[str] = field(default_factory=list)
    readwrite_paths: list[str] = field(default_factory=list)
    allow_outbound: bool = False
    allowed_hosts: list[str] = field(default_factory=list)
    allow_unrestricted_egress: bool = False
    timeout_ms: int = 60_000
    experimental: bool = False
    env_vars: dict[str, str] = field(default_factory=dict)
    extra_config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.version:
            raise ValueError("version must be a non-empty string")
        if self.backend is not None and self.backend not in _STABLE | _EXPERIMENTAL:
            raise ValueError(
                f"Unknown MXC backend '{self.backend}'. Expected one of {sorted(_STABLE | _EXPERIMENTAL)} "
                "or None for the platform default."
            )
        self.experimental = self.experimental or backend_requires_experimental(self.backend)
        if self.timeout_ms <= 0:
            raise ValueError("timeout_ms must be positive")
        self._check_egress()

    def _check_egress(self) -> None:
        """The rule about the network is that of nono."""
        NonoConfig(
            allow_outbound=self.allow_outbound,
            allowed_hosts=self.allowed_hosts,
            allow_unrestricted_egress=self.allow_unrestricted_egress,
        )

    @property
    def needs_experimental(self) -> bool:
        """Whether MXC runs it only with ``--experimental``."""
        return self.experimental or backend_requires_experimental(self.backend)

    def to_mxc_json(self, command_line: str) -> dict[str, Any]:
        """The document that MXC reads. ``extra_config`` adds to it, but changes neither mounts, network nor time."""
        self._check_egress()
        document: dict[str, Any] = {
            "version": self.version,
            "process": {"commandLine": command_line},
        }
        environment = self.sanitized_env()
        if environment:
            document["process"]["environment"] = environment
        if self.backend is not None:
            document["backend"] = self.backend
        network: dict[str, Any] = {"allowOutbound": self.allow_outbound}
        if self.allow_outbound and self.allowed_hosts:
            network["allowedHosts"] = list(self.allowed_hosts)
        fixed = {
            "network": network,
            "filesystem": {
                "readonlyPaths": list(self.readonly_paths),
                "readwritePaths": list(self.readwrite_paths),
            },
            "timeoutMs": self.timeout_ms,
        }
        document = _merged(document, copy.deepcopy(self.extra_config))
        if "allowedHosts" not in network and isinstance(document.get("network"), dict):
            document["network"].pop("allowedHosts", None)
        return _merged(document, fixed)

    def sanitized_env(self) -> dict[str, str]:
        """The variables without those that change what programs load when they start."""
        return sanitize_env_vars(self.env_vars)

    @classmethod
    def from_sandbox_config(
        cls, cfg: Any, *, backend: str | None = None, experimental: bool = False
    ) -> MxcConfig:
        """The directories, the network and the time limit of a config."""
        same = NonoConfig.from_sandbox_config(cfg)
        return _of(same, backend=backend, experimental=experimental)


def mxc_config_from_policy(policy: Any, base: MxcConfig | None = None) -> MxcConfig:
    """A config with the limits, mounts and hosts of a policy. What the policy does not set stays as it is."""
    base = MxcConfig() if base is None else base
    same = NonoConfig(
        readonly_paths=base.readonly_paths,
        readwrite_paths=base.readwrite_paths,
        allow_outbound=base.allow_outbound,
        allowed_hosts=base.allowed_hosts,
        allow_unrestricted_egress=base.allow_unrestricted_egress,
        timeout_seconds=base.timeout_ms / 1000,
        env_vars=base.env_vars,
    )
    return _of(
        nono_config_from_policy(policy, same),
        version=base.version,
        backend=base.backend,
        experimental=base.experimental,
        extra_config=dict(base.extra_config),
    )


def policy_to_mxc_json(
    policy: Any, command_line: str, *, base: MxcConfig | None = None
) -> dict[str, Any]:
    """The document for MXC of a policy."""
    return mxc_config_from_policy(policy, base).to_mxc_json(command_line)


def policy_yaml_to_mxc_json(
    yaml_path: str, command_line: str, *, base: MxcConfig | None = None
) -> dict[str, Any]:
    """The document for MXC of a policy file."""
    return policy_to_mxc_json(_policy_file.read(yaml_path), command_line, base=base)


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Objects are merged; of everything else, what is on top counts."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = _merged(below, value)
        merged[key] = value
    return merged


def _of(config: NonoConfig, **more: Any) -> MxcConfig:
    return MxcConfig(
        readonly_paths=config.readonly_paths,
        readwrite_paths=config.readwrite_paths,
        allow_outbound=config.allow_outbound,
        allowed_hosts=config.allowed_hosts,
        allow_unrestricted_egress=config.allow_unrestricted_egress,
        timeout_ms=int(config.timeout_seconds * 1000),
        env_vars=config.env_vars,
        **more,
    )
