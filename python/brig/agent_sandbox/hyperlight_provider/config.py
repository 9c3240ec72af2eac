"""The config of AGT's Hyperlight provider."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..sandbox_provider import SandboxConfig

__all__ = ["HyperlightConfig", "hyperlight_config_from_policy"]

_BACKENDS = frozenset({"hyperlightjs", "nanvix", "wasm"})
_MIB = 1024 * 1024


@dataclass
class HyperlightConfig:
    """What a micro VM is created with."""

    backend: str = "wasm"
    module: str | None = "python_guest"
    heap_size_bytes: int = 64 * _MIB
    stack_size_bytes: int = 2 * _MIB
    max_execution_time_ms: int = 60_000
    input_dir: str | None = None
    output_dir: str | None = None
    env_vars: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.backend not in _BACKENDS:
            raise ValueError(
                f"Unknown Hyperlight backend '{self.backend}'. Expected one of: {sorted(_BACKENDS)}"
            )
        for name in ("heap_size_bytes", "stack_size_bytes", "max_execution_time_ms"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive")

    @classmethod
    def from_sandbox_config(
        cls, cfg: SandboxConfig, *, backend: str = "wasm", module: str | None = "python_guest"
    ) -> HyperlightConfig:
        """Memory becomes the heap. There is one processor, whatever the limit."""
        return cls(
            backend=backend,
            module=module,
            heap_size_bytes=int(cfg.memory_mb) * _MIB,
            max_execution_time_ms=int(cfg.timeout_seconds * 1000),
            input_dir=cfg.input_dir,
            output_dir=cfg.output_dir,
            env_vars=dict(cfg.env_vars),
        )


def hyperlight_config_from_policy(
    policy: Any, base: HyperlightConfig | None = None
) -> HyperlightConfig:
    """A config with the limits and mounts of a policy. What the policy does not set stays as it is."""
    config = HyperlightConfig() if base is None else replace(base, env_vars=dict(base.env_vars))
    defaults = getattr(policy, "defaults", None)
    memory = getattr(defaults, "max_memory_mb", None)
    if isinstance(memory, (int, float)) and memory > 0:
        config.heap_size_bytes = int(memory) * _MIB
    seconds = getattr(defaults, "timeout_seconds", None)
    if isinstance(seconds, (int, float)) and seconds > 0:
        config.max_execution_time_ms = int(seconds * 1000)
    mounts = getattr(policy, "sandbox_mounts", None)
    for name in ("input_dir", "output_dir"):
        value = getattr(mounts, name, None)
        if value:
            setattr(config, name, str(value))
    return config
