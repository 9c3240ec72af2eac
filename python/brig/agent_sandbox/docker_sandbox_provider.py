"""Another name of `docker_provider`, which AGT's own tests use."""

from .docker_provider import DockerSandboxProvider

__all__ = ["DockerSandboxProvider"]
