"""AGT's provider for Azure Container Apps on Brig's backend `aca`."""

from .aca_sandbox_provider import ACASandboxProvider, aca_config_from_policy

__all__ = ["ACASandboxProvider", "aca_config_from_policy"]
