"""The distribution with the alias."""

from __future__ import annotations

import pytest

import brig.agent_sandbox
from conftest import skipped


def test_the_alias_is_the_same_modules() -> None:
    try:
        import agent_sandbox
        from agent_sandbox.docker_provider.provider import DockerSandboxProvider
    except ImportError:
        why = "the alias agent_sandbox: it is not installed"
        skipped(why)
        pytest.skip(why)
    import agent_sandbox.code_scanner as scanner

    assert DockerSandboxProvider is brig.agent_sandbox.DockerSandboxProvider
    assert agent_sandbox.SandboxConfig is brig.agent_sandbox.SandboxConfig
    assert scanner is brig.agent_sandbox.code_scanner
    assert agent_sandbox.__version__ == brig.__version__
    with pytest.raises(scanner.SandboxCodeViolation):
        agent_sandbox.code_scanner.enforce_no_subprocess_execution("import os; os.system('x')")
