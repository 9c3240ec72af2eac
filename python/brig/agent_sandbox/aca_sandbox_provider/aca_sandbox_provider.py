"""AGT's provider for Azure Container Apps on Brig's backend `aca`. Microsoft's SDK is not needed."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from ... import _native
from ..._config import Options
from .._provider import BrigSandboxProvider
from ..sandbox_provider import SandboxConfig

__all__ = ["ACASandboxProvider", "aca_config_from_policy"]

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,62}")


class ACASandboxProvider(BrigSandboxProvider):
    """Sessions in sandboxes of Azure Container Apps.

    ``credential`` is one of ``azure.identity``, or the name of a source of tokens; without it, the environment
    decides. Nothing is sent to Azure before the first session is created.
    """

    def __init__(
        self,
        resource_group: str,
        sandbox_group: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        subscription_id: str | None = None,
        credential: Any | None = None,
        disk: str = "python-3.13",
        ensure_group_location: str | None = None,
    ) -> None:
        _validate_resource_name(sandbox_group, "sandbox_group")
        region = region or ensure_group_location or os.environ.get("AZURE_SANDBOX_REGION")
        given = {
            "resource_group": resource_group,
            "sandbox_group": sandbox_group,
            "subscription": subscription_id,
            "region": region,
            "endpoint": None if endpoint is None else endpoint.rstrip("/"),
            "ensure_group_location": ensure_group_location,
            "credential": credential,
        }
        settings = {name: value for name, value in given.items() if value is not None}
        options: Options = {"image": disk, "azure": settings}
        super().__init__("aca", options=options)
        self._unavailable = _missing(settings)
        # A sandbox of the service is not created only to see whether that works.
        self._checked = True

    def _unavailable_message(self) -> str:
        return f"ACASandboxProvider is not available: {self._unavailable}"


def _missing(settings: Mapping[str, Any]) -> str | None:
    """What has to be given before anything can be asked of Azure."""
    if "aca" not in _native.backends():
        return (
            "this build of Brig has no Azure backend; "
            "build the package with MATURIN_PEP517_ARGS='--features azure' pip install ."
        )
    if "region" not in settings and "endpoint" not in settings and not os.environ.get("ACA_REGION"):
        return (
            "ACASandboxProvider needs `region=` (or ensure_group_location=, or $AZURE_SANDBOX_REGION) to "
            "construct the data-plane endpoint."
        )
    if "subscription" not in settings and not os.environ.get("AZURE_SUBSCRIPTION_ID"):
        return "ACASandboxProvider needs `subscription_id=` (or $AZURE_SUBSCRIPTION_ID)."
    return None


def aca_config_from_policy(policy: Any, base: SandboxConfig | None = None) -> SandboxConfig:
    """A config with the limits of a policy. What the policy does not set stays as it is."""
    config = dataclasses.replace(base) if base is not None else SandboxConfig()
    config.env_vars = dict(config.env_vars)
    defaults = getattr(policy, "defaults", None)
    for source, target in (
        ("max_memory_mb", "memory_mb"),
        ("max_cpu", "cpu_limit"),
        ("timeout_seconds", "timeout_seconds"),
    ):
        value = getattr(defaults, source, None)
        if value:
            setattr(config, target, value)
    if getattr(policy, "network_allowlist", None):
        config.network_enabled = True
    return config


# AGT's own tests call these.


def _validate_resource_name(value: str, label: str) -> None:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(f"Invalid {label} '{value}': must match [a-zA-Z0-9][a-zA-Z0-9_-]{{0,62}}")


def _network_allowlist(policy: Any) -> list[str]:
    """The hosts of a policy, whose entries may be texts or objects."""
    found = (
        one if isinstance(one, str) else getattr(one, "host", None) or getattr(one, "pattern", None)
        for one in getattr(policy, "network_allowlist", None) or ()
    )
    return [host for host in found if host]


def _network_default(policy: Any) -> str:
    """``deny`` unless the policy says ``allow``."""
    value = getattr(getattr(policy, "defaults", None), "network_default", None)
    return "allow" if isinstance(value, str) and value.lower() == "allow" else "deny"


def _unpack_exec_result(response: Any) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of an answer of Microsoft's SDK: an object or a mapping."""
    if response is None:
        return -1, "", ""
    found = response
    if not isinstance(response, Mapping):
        if not hasattr(response, "exit_code") and not hasattr(response, "stdout"):
            return -1, "", str(response)
        names = ("exit_code", "exitCode", "stdout", "stderr")
        found = {name: getattr(response, name, None) for name in names}
    code = found.get("exit_code")
    code = found.get("exitCode") if code is None else code
    text = [str(found.get(name) or "") for name in ("stdout", "stderr")]
    return -1 if code is None else int(code), text[0], text[1]
