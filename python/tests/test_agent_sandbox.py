"""AGT's interface: its names, its order of checks, its exceptions and messages."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import importlib.util
import inspect
import os
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import brig
from brig import agent_sandbox
from brig.agent_sandbox import (
    BrigSandboxProvider,
    DockerSandboxProvider,
    ExecutionStatus,
    HyperlightConfig,
    HyperLightSandboxProvider,
    IsolationRuntime,
    MxcConfig,
    MxcSandboxProvider,
    NonoConfig,
    NonoSandboxProvider,
    SandboxConfig,
    SandboxProvider,
    SandboxResult,
    SandboxStateManager,
    SessionHandle,
    SessionStatus,
)
from brig.agent_sandbox import _provider as provider_module
from brig.agent_sandbox.aca_sandbox_provider import aca_sandbox_provider as aca
from brig.agent_sandbox.code_scanner import (
    SandboxCodeViolation,
    enforce_no_subprocess_execution,
    scan_code_for_subprocesses,
)
from brig.agent_sandbox.docker_provider import docker_config_from_policy
from brig.agent_sandbox.docker_provider.provider import (
    _BLOCKED_ENV_VARS,
    _is_protected_path,
    _sanitize_env_vars,
    _validate_mount_path,
    _validate_resource_name,
)
from brig.agent_sandbox.mxc_sandbox_provider import backend_requires_experimental, policy_yaml_to_mxc_json
from brig.agent_sandbox.nono_sandbox_provider import policy_yaml_to_nono_config
from conftest import skipped

POLICY: dict[str, Any] = {
    "name": "research-agent",
    "defaults": {"action": "allow", "timeout_seconds": 90},
    "rules": [
        {
            "name": "deny-shell-out",
            "condition": {"field": "code", "operator": "contains", "value": "subprocess"},
            "action": "deny",
            "priority": 100,
            "message": "shell-out blocked by research-agent policy",
        }
    ],
}


@pytest.fixture(params=["native", "docker"])
def provider(request: pytest.FixtureRequest) -> Iterator[BrigSandboxProvider]:
    if request.param == "native":
        made: BrigSandboxProvider = NonoSandboxProvider()
    else:
        socket, image = os.environ.get("BRIG_TEST_DOCKER"), os.environ.get("BRIG_TEST_IMAGE")
        if not socket or not image:
            why = "AGT's Docker provider: BRIG_TEST_DOCKER and BRIG_TEST_IMAGE name no engine"
            skipped(why)
            pytest.skip(why)
        made = DockerSandboxProvider(image=image, docker_url=f"unix://{socket}", runtime=IsolationRuntime.RUNC)
    with made:
        yield made


def out(provider: BrigSandboxProvider, session: SessionHandle, code: str) -> str:
    done = provider.execute_code(session.agent_id, session.session_id, code)
    assert done.result is not None
    assert done.status is ExecutionStatus.COMPLETED, done.result.stderr
    return done.result.stdout


def test_all_names_and_modules_of_agt_are_there() -> None:
    names = """
        ACASandboxProvider DockerSandboxProvider ExecutionHandle ExecutionStatus HyperLightSandboxProvider
        HyperlightBackend HyperlightConfig IsolationRuntime SandboxCheckpoint SandboxConfig SandboxProvider
        SandboxResult SandboxStateManager SessionHandle SessionStatus SnapshotHandle hyperlight_config_from_policy
        MxcConfig MxcSandboxProvider NonoConfig NonoSandboxProvider mxc_config_from_policy nono_config_from_policy
        """.split()
    assert set(names) <= set(agent_sandbox.__all__)
    assert agent_sandbox.__author__ and agent_sandbox.__version__ == brig.__version__
    for module in """
        sandbox_provider isolation_runtime code_scanner docker_provider docker_provider.provider
        docker_provider.state docker_sandbox_provider hyperlight_provider hyperlight_provider.config
        hyperlight_provider.provider aca_sandbox_provider aca_sandbox_provider.aca_sandbox_provider
        nono_sandbox_provider nono_sandbox_provider.config nono_sandbox_provider.provider
        mxc_sandbox_provider mxc_sandbox_provider.config mxc_sandbox_provider.provider _hardening
        """.split():
        importlib.import_module(f"brig.agent_sandbox.{module}")


def test_defaults_are_those_of_agt() -> None:
    config = SandboxConfig()
    assert (config.timeout_seconds, config.memory_mb, config.cpu_limit) == (60.0, 512, 1.0)
    assert (config.network_enabled, config.read_only_fs, config.env_vars) == (False, True, {})
    assert (config.input_dir, config.output_dir, config.runtime) == (None, None, None)
    assert (config.output_max_bytes, config.ring) == (1_048_576, None)
    assert list(inspect.signature(SandboxConfig).parameters)[-1] == "ring"
    result = SandboxResult(success=True)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert (result.duration_seconds, result.killed, result.kill_reason) == (0.0, False, "")
    assert SessionHandle("a", "s").status is SessionStatus.READY
    assert [one.value for one in IsolationRuntime] == ["runc", "runsc", "kata-runtime", "auto"]
    assert SessionStatus("destroyed") == "destroyed" and ExecutionStatus("failed") == "failed"


def test_a_provider_of_ones_own_has_the_defaults() -> None:
    class Own(SandboxProvider):
        def create_session(self, agent_id: str, policy: Any = None, config: Any = None) -> SessionHandle:
            return SessionHandle(agent_id, "s")

        def execute_code(
            self, agent_id: str, session_id: str, code: str, *, context: Any = None
        ) -> agent_sandbox.ExecutionHandle:
            return agent_sandbox.ExecutionHandle("e", agent_id, session_id)

        def destroy_session(self, agent_id: str, session_id: str) -> None: ...

        def is_available(self) -> bool:
            return True

    own = Own()
    assert own.get_session_status("a", "s") is SessionStatus.DESTROYED
    assert own.get_execution_status("a", "s", "e").status is ExecutionStatus.COMPLETED
    assert own.cancel_execution("a", "s", "e") is False
    with pytest.raises(NotImplementedError):
        own.run("a", ["ls"])
    assert asyncio.run(own.execute_code_async("a", "s", "1")).execution_id == "e"
    with pytest.raises(TypeError):
        SandboxProvider()  # type: ignore[abstract]


def test_the_scan_finds_what_agt_finds() -> None:
    for code, pattern in (
        ("import subprocess\nsubprocess.run(['ls'])", "subprocess.run"),
        ("import os as o\no.system('ls')", "os.system"),
        ("from os import popen as p\np('ls')", "os.popen"),
        ("import pty\npty.spawn('sh')", "pty.spawn"),
        ("__import__('os').system('ls')", "os.system"),
        ("from subprocess import *", "subprocess.*"),
    ):
        assert [one.pattern for one in scan_code_for_subprocesses(code)] == [pattern], code
    for code in ("# os.system('x')", "x = 'subprocess.run()'", "def (", "print(1)"):
        assert scan_code_for_subprocesses(code) == []
    with pytest.raises(PermissionError) as found:
        enforce_no_subprocess_execution("import os\nos.system('a')\nos.system('b')\nos.popen('c')\nos.popen('d')")
    assert isinstance(found.value, SandboxCodeViolation)
    assert len(found.value.violations) == 4 and found.value.violations[0].column == 0
    assert str(found.value) == (
        "Sandbox code denied: potential subprocess execution "
        "(line 2:1 os.system; line 3:1 os.system; line 4:1 os.popen; +1 more)"
    )


def test_helpers_keep_their_messages() -> None:
    for good in ("a", "agent-1", "A.b_c", "x" * 128):
        _validate_resource_name(good, "agent_id")
    for bad in ("", "-a", "a b", "a/b", "x" * 129, "a\n"):
        with pytest.raises(ValueError, match="Invalid agent_id"):
            _validate_resource_name(bad, "agent_id")
    for path in ("/", "/etc", "/etc/", "/bin", "/lib", "/proc"):
        assert _is_protected_path(path), path
        with pytest.raises(ValueError, match="Cannot mount protected system directory"):
            _validate_mount_path(path, "input_dir")
    assert not _is_protected_path("/srv/data")
    assert "LD_PRELOAD" in _BLOCKED_ENV_VARS
    assert _sanitize_env_vars({"ld_preload": "x", "A": "1"}) == {"A": "1"}


def test_configs_are_checked_and_derived() -> None:
    assert HyperlightConfig().heap_size_bytes == 64 << 20
    with pytest.raises(ValueError, match="Unknown Hyperlight backend 'x'"):
        HyperlightConfig(backend="x")
    with pytest.raises(ValueError, match="heap_size_bytes must be positive"):
        HyperlightConfig(heap_size_bytes=0)
    assert HyperlightConfig.from_sandbox_config(SandboxConfig(memory_mb=128)).heap_size_bytes == 128 << 20
    for kind in (NonoConfig, MxcConfig):
        with pytest.raises(ValueError, match="without a host allowlist"):
            kind(allow_outbound=True)
        assert kind.from_sandbox_config(SandboxConfig(env_vars={"ENV": "x", "A": "1"})).sanitized_env() == {"A": "1"}
    policy = SimpleNamespace(
        defaults=SimpleNamespace(max_memory_mb=256, max_cpu=None, timeout_seconds=9),
        network_allowlist=["example.com"],
    )
    config = docker_config_from_policy(policy, SandboxConfig(output_max_bytes=7))
    assert (config.memory_mb, config.cpu_limit, config.timeout_seconds) == (256, 1.0, 9)
    assert config.output_max_bytes == 7 and config.network_enabled
    nono = agent_sandbox.nono_config_from_policy(policy)
    assert (nono.allowed_hosts, nono.timeout_seconds) == (["example.com"], 9.0)
    assert agent_sandbox.mxc_config_from_policy(policy).timeout_ms == 9000
    assert agent_sandbox.hyperlight_config_from_policy(policy).max_execution_time_ms == 9000


def test_policy_files_become_configs(tmp_path: Path) -> None:
    if importlib.util.find_spec("yaml") is None:
        why = "policy files of AGT: PyYAML is not installed"
        skipped(why)
        pytest.skip(why)
    file = tmp_path / "policy.yaml"
    file.write_text(
        "defaults: {timeout_seconds: 9}\nnetwork_allowlist: [example.com]\nsandbox_mounts: {input_dir: /srv/in}\n"
    )
    nono = policy_yaml_to_nono_config(str(file))
    assert (nono.timeout_seconds, nono.allowed_hosts, nono.readonly_paths) == (9.0, ["example.com"], ["/srv/in"])
    base = MxcConfig(
        backend="microvm",
        env_vars={"LD_PRELOAD": "x", "A": "1"},
        extra_config={"ui": {"x": 1}, "network": {"allowedHosts": ["*"], "y": 2}, "timeoutMs": 1},
    )
    assert base.needs_experimental and not backend_requires_experimental("lxc")
    assert policy_yaml_to_mxc_json(str(file), "python3 x.py", base=base) == {
        "version": "0.6.0-alpha",
        "backend": "microvm",
        "process": {"commandLine": "python3 x.py", "environment": {"A": "1"}},
        "filesystem": {"readonlyPaths": ["/srv/in"], "readwritePaths": []},
        "network": {"allowOutbound": True, "allowedHosts": ["example.com"], "y": 2},
        "timeoutMs": 9000,
        "ui": {"x": 1},
    }
    closed = MxcConfig(extra_config={"network": {"allowOutbound": True, "allowedHosts": ["*"]}}).to_mxc_json("x")
    assert closed["network"] == {"allowOutbound": False}
    file.write_text("[]")
    assert policy_yaml_to_nono_config(str(file)) == NonoConfig()
    file.write_text("[1]")
    with pytest.raises(ValueError, match="must be a mapping, got list"):
        policy_yaml_to_nono_config(str(file))


def test_policies_that_nobody_checked_are_checked() -> None:
    for fields, error, text in (
        ({"network_allowlist": "pypi.org"}, TypeError, "network_allowlist must be a list"),
        ({"network_allowlist": ["  "]}, ValueError, "non-empty strings; entry 0"),
        ({"defaults": SimpleNamespace(timeout_seconds="x")}, TypeError, "timeout_seconds must be a number, got str"),
        ({"defaults": SimpleNamespace(timeout_seconds=0)}, ValueError, "must be positive, got 0"),
        ({"sandbox_mounts": SimpleNamespace(input_dir=1)}, TypeError, "input_dir must be a string"),
    ):
        for translate in (agent_sandbox.nono_config_from_policy, agent_sandbox.mxc_config_from_policy):
            with pytest.raises(error, match=text):
                translate(SimpleNamespace(**fields))
    with pytest.raises(ValueError, match="Unknown MXC backend 'x'"):
        MxcSandboxProvider(backend="x")


def test_helpers_for_azure_are_those_of_agt() -> None:
    policy = SimpleNamespace(
        defaults=SimpleNamespace(max_cpu=None, max_memory_mb=1024, timeout_seconds=0, network_default="ALLOW"),
        network_allowlist=["a.example", SimpleNamespace(host="b.example"), SimpleNamespace(pattern="*.c.example")],
    )
    config = aca.aca_config_from_policy(policy, SandboxConfig(cpu_limit=2.0, env_vars={"A": "1"}))
    assert (config.memory_mb, config.cpu_limit, config.timeout_seconds) == (1024, 2.0, 60.0)
    assert config.network_enabled and config.env_vars == {"A": "1"}
    assert aca._network_allowlist(policy) == ["a.example", "b.example", "*.c.example"]
    assert [aca._network_default(one) for one in (policy, object())] == ["allow", "deny"]
    assert aca._unpack_exec_result({"exitCode": 3, "stdout": "x"}) == (3, "x", "")
    assert aca._unpack_exec_result(SimpleNamespace(stdout="x")) == (-1, "x", "")
    assert aca._unpack_exec_result(None) == (-1, "", "") and aca._unpack_exec_result(5) == (-1, "", "5")


def test_what_has_no_backend_says_so() -> None:
    for provider in (HyperLightSandboxProvider(), MxcSandboxProvider()):
        assert not provider.is_available()
        assert "BrigSandboxProvider" in provider.unavailable_reason
        with pytest.raises(RuntimeError, match="unavailable"):
            provider.create_session("a")
        provider.destroy_session("a", "s")
    hyperlight = HyperLightSandboxProvider()
    with pytest.raises(RuntimeError, match="No active session for agent 'a'"):
        hyperlight.snapshot_session("a", "s")
    with pytest.raises(RuntimeError, match="No active session for agent 'a'"):
        hyperlight.restore_snapshot("a", "s", "x")
    assert "MXC" in MxcSandboxProvider().run("a", ["ls"]).stderr
    with pytest.raises(RuntimeError, match="MXC unavailable"):
        MxcSandboxProvider().run_once("a", "1")
    nowhere = DockerSandboxProvider(docker_url="unix:///nonexistent/docker.sock")
    with pytest.raises(RuntimeError, match="Docker daemon is not available"):
        nowhere.ensure_image()
    assert not nowhere.is_available() and nowhere.unavailable_reason
    with pytest.raises(RuntimeError, match="Docker daemon is not available"):
        nowhere.create_session("a")
    with pytest.raises(ValueError, match="cannot be used together"):
        DockerSandboxProvider(image="x", require_hardened_image=True)


def test_sessions_live_and_end(provider: BrigSandboxProvider) -> None:
    assert provider.is_available()
    one, two = provider.create_session("agent-1"), provider.create_session("agent-2")
    assert one.session_id != two.session_id and len(one.session_id) == 8
    assert provider.get_session_status("agent-1", one.session_id) is SessionStatus.READY
    assert out(provider, one, "print('hello')\nprint(1 + 1)") == "hello\n2\n"
    out(provider, one, "open('kept', 'w').write('x')")
    assert out(provider, one, "print(open('kept').read())") == "x\n"
    assert out(provider, two, "import os; print(os.path.exists('kept'))") == "False\n"
    begun = time.monotonic()
    provider.destroy_session("agent-1", one.session_id)
    assert time.monotonic() - begun < 30
    provider.destroy_session("agent-1", one.session_id)
    provider.destroy_session("nobody", "nothing")
    assert provider.get_session_status("agent-1", one.session_id) is SessionStatus.DESTROYED
    with pytest.raises(RuntimeError) as gone:
        provider.execute_code("agent-1", one.session_id, "print(1)")
    assert str(gone.value) == (
        f"No active session for agent 'agent-1' with session_id '{one.session_id}'. "
        "Call create_session() first."
    )
    with pytest.raises(ValueError, match="Invalid agent_id 'a b'"):
        provider.create_session("a b")


def test_failures_are_results(provider: BrigSandboxProvider) -> None:
    session = provider.create_session("a")
    for code, text in (
        ("import sys; sys.exit(3)", ""),
        ("print('x', file=__import__('sys').stderr); raise SystemExit(3)", "x\n"),
    ):
        done = provider.execute_code("a", session.session_id, code)
        assert done.status is ExecutionStatus.FAILED and done.result is not None
        assert (done.result.success, done.result.exit_code, done.result.stderr) == (False, 3, text)
    bad = provider.execute_code("a", session.session_id, "def (")
    assert bad.result and "SyntaxError" in bad.result.stderr
    assert bad.result.duration_seconds > 0


def test_a_command_runs(provider: BrigSandboxProvider) -> None:
    assert provider.run("a", ["ls"]) == SandboxResult(
        False, -1, stderr="No container found for agent 'a'"
    )
    session = provider.create_session("a", POLICY)
    done = provider.run("a", ["echo", "hi"], session_id=session.session_id)
    assert (done.success, done.stdout) == (True, "hi\n")
    assert provider.run("a", ["printenv", "A"], SandboxConfig(env_vars={"A": "1"})).stdout == "1\n"
    slept = provider.run("a", ["python3", "-c", "import time; time.sleep(0.2)"])
    assert slept.success and slept.duration_seconds >= 0.1
    missing = provider.run("a", ["no-such-program"])
    assert (missing.success, missing.exit_code) == (False, 127)


def test_time_is_limited_and_the_session_goes_on(provider: BrigSandboxProvider) -> None:
    session = provider.create_session("a", config=SandboxConfig(timeout_seconds=2))
    done = provider.execute_code("a", session.session_id, "import time\nwhile True: time.sleep(1)")
    assert done.status is ExecutionStatus.FAILED and done.result is not None
    assert (done.result.exit_code, done.result.killed) == (137, True)
    assert done.result.kill_reason == "Execution exceeded timeout of 2s"
    assert out(provider, session, "print(1)") == "1\n"


def test_the_policy_comes_first_then_the_scan(provider: BrigSandboxProvider) -> None:
    session = provider.create_session("a", POLICY)
    with pytest.raises(PermissionError) as denied:
        provider.execute_code("a", session.session_id, "import subprocess; subprocess.run(['ls'])")
    assert str(denied.value) == "Policy denied: shell-out blocked by research-agent policy"
    with pytest.raises(SandboxCodeViolation):
        provider.execute_code("a", session.session_id, "import os; os.system('ls')")
    # What the caller adds replaces nothing.
    with pytest.raises(ValueError, match="'code' is stated by Brig"):
        provider.execute_code("a", session.session_id, "import subprocess", context={"code": "1"})
    assert provider.execute_code("a", session.session_id, "1", context={"agent_id": "a", "x": 1}).result


def test_code_is_confined(provider: BrigSandboxProvider, tmp_path: Path) -> None:
    config = SandboxConfig(env_vars={"GREETING": "hi", "LD_PRELOAD": "/x.so"})
    session = provider.create_session("a", config=config)
    code = """
import os
print(os.getuid(), os.environ.get('GREETING'), os.environ.get('LD_PRELOAD'))
for path in ('/usr/x', '/workspace/x'):
    try:
        open(path, 'w').close()
        print('written')
    except OSError as error:
        print('refused')
print([line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')])
"""
    text = out(provider, session, code)
    assert text == "65534 hi None\nrefused\nwritten\n['0000000000000000']\n"
    closed = provider.execute_code(
        "a", session.session_id, "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    )
    assert closed.result and not closed.result.success


def test_memory_and_processes_are_limited(provider: BrigSandboxProvider) -> None:
    """AGT's own tests read files of the container, which are not there on every backend."""
    config = SandboxConfig(memory_mb=256)
    native = {one.name: one.strength for one in brig.doctor().backends[0].controls}
    if isinstance(provider, NonoSandboxProvider) and native["memory"] != "enforced":
        # What is asked for is enforced or refused.
        with pytest.raises(RuntimeError, match="cannot enforce: memory"):
            provider.create_session("a", config=config)
        session = provider.create_session("a")
    else:
        session = provider.create_session("a", config=config)
        assert out(provider, session, "b = bytearray(100 << 20); print(len(b))") == "104857600\n"
        over = provider.execute_code("a", session.session_id, "b = b'x' * (400 << 20); print(len(b))")
        assert over.result and not over.result.success
    count = """
import os, time
n = 0
try:
    while n < 400:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        n += 1
except OSError:
    pass
print(n)
"""
    assert 200 <= int(out(provider, session, count)) <= 256


LOOKUP = """
import socket
for name in ('one.invalid', 'two.invalid'):
    try:
        print(len(socket.getaddrinfo(name, 443)) > 0)
    except OSError:
        print('unknown')
"""


def test_a_network_is_as_open_as_it_is_asked_for(provider: BrigSandboxProvider) -> None:
    """Names are answered in the sandbox: nothing is sent."""

    def names(policy: Any, enabled: bool) -> str:
        session = provider.create_session("a", policy, SandboxConfig(network_enabled=enabled))
        text = out(provider, session, LOOKUP)
        provider.destroy_session("a", session.session_id)
        return text

    closed, both = "unknown\nunknown\n", "True\nTrue\n"
    assert names(None, False) == closed
    # Every public host, as in AGT.
    assert names(None, True) == both
    assert names({"defaults": {"action": "allow", "network_default": "allow"}}, False) == both
    # A policy decides, whatever the config says.
    assert names({"defaults": {"action": "allow"}}, True) == closed
    listed = {"defaults": {"action": "allow"}, "network_allowlist": ["two.invalid"]}
    assert names(listed, True) == "unknown\nTrue\n"


def test_variables_that_load_programs_never_arrive(provider: BrigSandboxProvider) -> None:
    """What AGT drops is dropped; what it overlooks is refused."""
    session = provider.create_session("a", config=SandboxConfig(env_vars={"LD_PRELOAD": "/x.so", "A": "1"}))
    assert out(provider, session, "import os; print('LD_PRELOAD' in os.environ, os.environ['A'])") == "False 1\n"
    with pytest.raises(ValueError, match="GLIBC_TUNABLES"):
        provider.create_session("a", config=SandboxConfig(env_vars={"GLIBC_TUNABLES": "x"}))


def test_states_are_saved_with_the_workspace(provider: BrigSandboxProvider) -> None:
    session = provider.create_session("a")
    id = session.session_id
    out(provider, session, "open('f', 'w').write('before')")
    saved = provider.save_state("a", id, "one")
    assert (saved.name, saved.image_tag) == ("one", "agent-sandbox-a:one")
    out(provider, session, "open('f', 'w').write('after')")
    provider.restore_state("a", id, "one")
    assert out(provider, session, "print(open('f').read())") == "before\n"
    manager = SandboxStateManager(provider)
    assert [one.name for one in manager.list_checkpoints("a")] == ["one"]
    with pytest.raises(RuntimeError, match="Checkpoint image 'agent-sandbox-a:two' not found for agent 'a'"):
        manager.restore("a", id, "two")
    with pytest.raises(RuntimeError, match="No active container for agent 'b', session 'x'"):
        manager.save("b", "x", "one")
    manager.delete_checkpoint("a", "one")
    assert provider.list_checkpoints("a") == []
    with pytest.raises(RuntimeError, match="Failed to delete checkpoint"):
        provider.delete_checkpoint("a", "one")


async def test_async_twins_are_real(provider: BrigSandboxProvider) -> None:
    session = await provider.create_session_async("a")
    id = session.session_id
    done = await asyncio.gather(*(provider.execute_code_async("a", id, f"print({n})") for n in range(3)))
    assert [one.result.stdout for one in done if one.result] == ["0\n", "1\n", "2\n"]
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(provider.execute_code_async("a", id, "import time; time.sleep(600)"), 1)
    await provider.destroy_session_async("a", id)
    once = await provider.run_once_async("a", "print(5)")
    assert once.result and once.result.stdout == "5\n"


def test_policies_of_every_form_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"defaults": {"action": "deny"}}')
    attributes = SimpleNamespace(defaults=SimpleNamespace(action="deny"), rules=[], network_allowlist=[])
    with BrigSandboxProvider("native") as provider:
        for policy in (file, str(file), {"defaults": {"action": "deny"}}, brig.Policy(file), attributes):
            session = provider.create_session("a", policy)
            with pytest.raises(PermissionError, match="Policy denied"):
                provider.execute_code("a", session.session_id, "1")
        with pytest.raises(TypeError, match="not a policy"):
            provider.create_session("a", object())
        with pytest.raises(ValueError, match="ring"):
            provider.create_session("a", config=SandboxConfig(ring=3))
        with pytest.raises(ValueError, match="protected system directory"):
            provider.create_session("a", config=SandboxConfig(input_dir="/etc"))


class Deny:
    action = "deny"


class NoSubprocess:
    name = "no-subprocess"
    action = "deny"
    message = "not here"

    class condition:
        field = "code"
        operator = "contains"
        value = "subprocess"


class Slots:
    __slots__ = ("action", "max_cpu")

    def __init__(self) -> None:
        self.action = "deny"


def decision(policy: object, code: str) -> brig.Decision:
    return provider_module._policy(policy).decide(code=code)


def test_attributes_of_objects_count_wherever_they_are() -> None:
    """Those of a class, of slots, of named tuples and of enumerations are as good as those of an instance."""
    action = enum.Enum("action", {"DENY": "deny"})
    for defaults in (
        Deny(), Deny, Slots(), namedtuple("Defaults", "action")("deny"), SimpleNamespace(action=action.DENY),
        dataclasses.make_dataclass("D", [("action", str, "deny")])(), {"action": "deny"},
    ):  # fmt: skip
        assert not decision(SimpleNamespace(defaults=defaults), "1").allowed, defaults
        assert not decision(type("P", (), {"defaults": defaults})(), "1").allowed, defaults
    for rules in ([NoSubprocess()], (NoSubprocess,), [{"name": "no-subprocess", **vars(SimpleNamespace(
        condition=NoSubprocess.condition, action="deny", message="not here"))}]):  # fmt: skip
        policy = SimpleNamespace(defaults=SimpleNamespace(action="allow", max_cpu=None), rules=rules)
        assert decision(policy, "print(1)").allowed
        assert decision(policy, "import subprocess").reason == "not here"
    # What Brig adds to AGT's document is enforced, as in a mapping.
    listed = {"defaults": {"action": "allow"}, "command_denylist": ["curl"]}
    same = provider_module._policy(SimpleNamespace(defaults=SimpleNamespace(action="allow"), command_denylist=["curl"]))
    for one in (brig.Policy(listed), same):
        assert not one.decide(command=["curl", "x"]).allowed
        assert one.decide(command=["ls"]).allowed


def test_objects_that_cannot_be_read_whole_are_refused() -> None:
    allow = SimpleNamespace(action="allow")

    class Broken:
        defaults = allow

        @property
        def rules(self) -> Any:
            raise AttributeError("later")

    class Method:
        defaults = allow

        def rules(self) -> Any: ...

    class Empty: ...

    loop = SimpleNamespace(defaults=allow)
    loop.scope = loop
    for policy, text in (
        (SimpleNamespace(defaults=allow, comand_denylist=["curl"]), "unknown key `comand_denylist`"),
        (SimpleNamespace(defaults=SimpleNamespace(action="allow", max_toke=1)), "unknown key `max_toke`"),
        (SimpleNamespace(defaults=allow, on_denial=print), "on_denial: it is a function"),
        (SimpleNamespace(defaults=SimpleNamespace(max_memory_mb=64)), "`action` is missing"),
        (SimpleNamespace(defaults=SimpleNamespace(action=None)), "`action` is missing"),
        (SimpleNamespace(defaults={}), "`action` is missing"),
        (SimpleNamespace(defaults=None, rules=[]), "`action` is missing"),
        (SimpleNamespace(rules=[]), "`action` is missing"),
        (SimpleNamespace(defaults=Empty()), "policy.defaults: nothing can be read from a `Empty`"),
        (SimpleNamespace(defaults=allow, rules=[Empty()]), r"policy.rules\[0\]: nothing can be read"),
        (SimpleNamespace(defaults=allow, rules=iter([])), "policy.rules: nothing can be read"),
        (SimpleNamespace(defaults=Mock(action="deny")), "attributes of a `Mock` can't be listed"),
        (Broken(), "policy.rules: it can't be read: later"),
        (Method(), "policy.rules: it is a function"),
        (loop, "contains itself"),
    ):
        with pytest.raises(ValueError, match=text):
            provider_module._policy(policy)


def test_models_are_read_whole_too() -> None:
    def model(**fields: Any) -> SimpleNamespace:
        return SimpleNamespace(model_dump=lambda mode: fields)

    assert not decision(model(defaults={"action": "deny"}, scope=None, dynamic=None), "1").allowed
    for fields, text in (
        ({"defaults": {"action": "allow"}, "dynamic": {}}, "unknown key `dynamic`"),
        ({"defaults": {"max_tokens": 1}}, "`action` is missing"),
        ({}, "`action` is missing"),
    ):
        for read in (brig.Policy, provider_module._policy):
            with pytest.raises(brig.PolicyInvalid, match=text):
                read(model(**fields))
    # Whoever asks for AGT's reading gets it.
    asked = brig.Policy(model(defaults={}), compat="agt")
    assert asked.decide(code="1").allowed and asked.warnings


def test_listed_tools_are_called_and_others_are_not_there() -> None:
    policy = {"defaults": {"action": "allow"}, "tool_allowlist": ["fetch"]}
    tools: dict[str, Any] = {"fetch": lambda query: f"<{query}>", "other": lambda: 1}
    with BrigSandboxProvider("native", tools=tools) as provider:
        session = provider.create_session("a", policy)
        assert out(provider, session, "print(fetch(query='x'))") == "<x>\n"
        refused = provider.execute_code("a", session.session_id, "other()")
        assert refused.result and not refused.result.success
        # Without a policy none may be called.
        plain = provider.create_session("a")
        assert not provider.execute_code("a", plain.session_id, "fetch(query='x')").result.success  # type: ignore[union-attr]
    with BrigSandboxProvider("native") as provider:
        session = provider.create_session("a", policy)
        assert not provider.execute_code("a", session.session_id, "fetch(query='x')").result.success  # type: ignore[union-attr]


def test_each_execution_has_a_receipt() -> None:
    with BrigSandboxProvider("native") as provider:
        session = provider.create_session("a", POLICY)
        out(provider, session, "print('hello')")
        with pytest.raises(PermissionError):
            provider.execute_code("a", session.session_id, "subprocess")
        # What the scan finds is no execution.
        with pytest.raises(SandboxCodeViolation):
            provider.execute_code("a", session.session_id, "import os; os.system('ls')")
        provider.destroy_session("a", session.session_id)
        receipts = provider.receipts()
    assert [one["outcome"] for one in receipts] == ["allowed", "denied-by-policy"]
    first = receipts[0]
    assert (first["event_type"], first["action"], first["agent_did"]) == ("sandbox.execute", "step:0", "a")
    assert first["data"]["stdout_excerpt"].startswith("hello")
    assert first["session_id"] == session.session_id
    assert len({one["entry_id"] for one in receipts}) == 2
