"""AGT's Docker provider on Brig's container backend."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from ... import _errors
from ..._config import Options
from .._hardening import BLOCKED_ENV_VARS as _BLOCKED_ENV_VARS
from .._hardening import is_protected_path as _is_protected_path
from .._hardening import sanitize_env_vars as _sanitize_env_vars
from .._hardening import validate_mount_path as _validate_mount_path
from .._hardening import validate_resource_name as _validate_resource_name
from .._provider import _RUNTIMES, BrigSandboxProvider
from ..isolation_runtime import IsolationRuntime
from ..sandbox_provider import SandboxConfig

__all__ = [
    "DockerSandboxProvider",
    "_BLOCKED_ENV_VARS",
    "_is_protected_path",
    "_sanitize_env_vars",
    "_validate_mount_path",
    "_validate_resource_name",
    "docker_config_from_policy",
    "has_iptables",
]


class DockerSandboxProvider(BrigSandboxProvider):
    """Sessions in containers, hardened by Brig.

    Without ``image`` it is the first common Python image that the engine has.
    """

    HARDENED_IMAGE_TAG = "agt-sandbox/python-minimal-path:3.11"

    def __init__(
        self,
        image: str | None = None,
        docker_url: str | None = None,
        runtime: IsolationRuntime = IsolationRuntime.AUTO,
        tools: Mapping[str, Callable[..., Any]] | None = None,
        require_hardened_image: bool = False,
    ) -> None:
        if require_hardened_image and image is not None:
            raise ValueError(
                "image and require_hardened_image cannot be used together; "
                "omit image to require the built-in hardened image"
            )
        options: Options = {}
        if require_hardened_image:
            image = self.HARDENED_IMAGE_TAG
        if image is not None:
            options["image"] = image
        if docker_url is not None:
            options["docker_host"] = docker_url
        runtime = IsolationRuntime(runtime)
        if runtime is not IsolationRuntime.AUTO:
            options["runtime"] = _RUNTIMES.get(runtime.value, runtime.value)
        self._runtime = runtime
        super().__init__("docker", tools=tools, options=options)
        self._available()
        if require_hardened_image and self._unavailable is not None:
            raise RuntimeError(
                f"Hardened sandbox image '{image}' is required but is not available locally: "
                f"{self._unavailable}"
            )

    @property
    def runtime(self) -> IsolationRuntime:
        """The runtime that was asked for."""
        return self._runtime

    @property
    def kernel_isolated(self) -> bool:
        """Whether the runtime that was asked for has a kernel of its own."""
        return self._runtime in (IsolationRuntime.GVISOR, IsolationRuntime.KATA)

    def ensure_image(self, image: str | None = None) -> None:
        """Pulls an image if the engine does not have it, and runs a program in it."""
        try:
            self._check(image).wait()
        except _errors.Error as error:
            raise RuntimeError(self._unavailable_message() if self._unavailable else str(error)) from error

    def _unavailable_message(self) -> str:
        return f"Docker daemon is not available: {self._unavailable}"


def docker_config_from_policy(policy: Any, base: SandboxConfig | None = None) -> SandboxConfig:
    """A config with the limits and mounts of a policy. What the policy does not set stays as it is."""
    config = dataclasses.replace(base) if base is not None else SandboxConfig()
    config.env_vars = dict(config.env_vars)
    defaults = getattr(policy, "defaults", None)
    for source, target in (
        ("max_memory_mb", "memory_mb"),
        ("max_cpu", "cpu_limit"),
        ("timeout_seconds", "timeout_seconds"),
    ):
        value = getattr(defaults, source, None)
        if value is not None:
            setattr(config, target, value)
    mounts = getattr(policy, "sandbox_mounts", None)
    for name in ("input_dir", "output_dir"):
        value = getattr(mounts, name, None)
        if value:
            setattr(config, name, str(value))
    if getattr(policy, "network_allowlist", None):
        config.network_enabled = True
    return config


def has_iptables() -> bool:
    """Whether the program is there. Brig does not use it."""
    return shutil.which("iptables") is not None
