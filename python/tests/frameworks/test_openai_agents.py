"""The OpenAI Agents SDK: its shell tool and its sandbox agents."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    ShellActionRequest,
    ShellCallData,
    ShellCommandRequest,
    ShellTool,
    Usage,
)
from agents.run_context import RunContextWrapper
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, WorkspaceArchiveWriteError, WorkspaceReadNotFoundError
from agents.sandbox.manifest import Manifest
from agents.sandbox.snapshot import LocalSnapshotSpec
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import brig
from brig.integrations.openai_agents import BrigSandboxClient, BrigSandboxSession, shell


class Scripted(Model):
    """Calls a tool with each of the arguments, then says what the last call gave back."""

    def __init__(self, tool: str, *arguments: dict[str, Any]) -> None:
        self._tool = tool
        self._arguments = list(arguments)

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        output: Any
        if self._arguments:
            call = ResponseFunctionToolCall(
                type="function_call",
                name=self._tool,
                call_id=f"call-{len(self._arguments)}",
                arguments=json.dumps(self._arguments.pop(0)),
            )
            output = call
        else:
            text = ResponseOutputText(type="output_text", text=str(input[-1]["output"]), annotations=[])
            output = ResponseOutputMessage(
                id="message", type="message", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def request(*commands: str, timeout_ms: int | None = None) -> ShellCommandRequest:
    action = ShellActionRequest(commands=list(commands), timeout_ms=timeout_ms)
    return ShellCommandRequest(RunContextWrapper(None), ShellCallData("call", action))


async def test_the_shell_tool() -> None:
    rule = {
        "name": "no",
        "condition": {"field": "code", "operator": "contains", "value": "forbidden"},
        "action": "deny",
    }
    options: dict[str, Any] = {"policy": {"rules": [rule], "defaults": {"action": "allow"}}}
    async with brig.AsyncSandbox(backend="native", **options) as box:
        execute = shell(box)
        assert ShellTool(executor=execute).executor is execute
        result = await execute(request("echo a > f", "cat f; cat g", "echo forbidden"))
        assert [one.exit_code for one in result.output] == [0, 1, 126]
        assert result.output[1].stdout == "a\n" and "g" in result.output[1].stderr
        assert "denied" in result.output[2].stderr
        late = await execute(request("echo b; sleep 600", "echo never", timeout_ms=1000))
        assert [(one.status, one.stdout) for one in late.output] == [("timeout", "b\n")]


async def test_a_session_of_a_sandbox_agent() -> None:
    client = BrigSandboxClient(backend="native")
    manifest = Manifest(entries={"notes/today.txt": File(content=b"buy milk")})
    session = await client.create(manifest=manifest)
    async with session:
        inner = session._inner
        assert isinstance(inner, BrigSandboxSession) and await session.running()
        found = await session.exec("cat", "notes/today.txt")
        assert (found.exit_code, found.stdout) == (0, b"buy milk")
        await session.write(Path("big.bin"), io.BytesIO(b"x" * 2_000_000))
        assert (await session.read(Path("big.bin"))).read() == b"x" * 2_000_000
        assert {Path(one.path).name for one in await session.ls(".")} >= {"notes", "big.bin"}
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("none"))
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 600", timeout=1)
        await session.rm("big.bin")
        with tarfile.open(fileobj=await session.persist_workspace()) as archive:
            assert "./notes/today.txt" in archive.getnames()
        with pytest.raises(WorkspaceArchiveWriteError):
            await session.hydrate_workspace(_archive("../escaped"))
        await session.hydrate_workspace(_archive("inside"))
        assert (await session.read(Path("inside"))).read() == b"data"
    await client.delete(session)
    assert not await session.running()


async def test_a_session_is_resumed_from_its_snapshot_or_from_where_it_was_kept(tmp_path: Path) -> None:
    for options in ({}, {"state_dir": tmp_path / "state"}):
        client = BrigSandboxClient(backend="native", **options)  # type: ignore[arg-type]
        snapshot = None if options else LocalSnapshotSpec(base_path=tmp_path / "snapshots")
        session = await client.create(snapshot=snapshot)
        async with session:
            await session.write(Path("note"), io.BytesIO(b"kept"))
        payload = json.loads(json.dumps(client.serialize_session_state(session.state)))
        state = client.deserialize_session_state(payload)
        resumed = await client.resume(state)
        async with resumed:
            assert (await resumed.read(Path("note"))).read() == b"kept"
        await client.delete(resumed)


async def test_a_sandbox_agent_runs() -> None:
    call = {"cmd": "echo x >> log; wc -l < log"}
    agent = SandboxAgent(
        name="worker", model=Scripted("exec_command", call, call), capabilities=[Shell()], instructions="work"
    )
    sandbox = SandboxRunConfig(client=BrigSandboxClient(backend="native"))
    config = RunConfig(sandbox=sandbox, tracing_disabled=True)
    result = await Runner.run(agent, "go", run_config=config)
    assert "2" in result.final_output and "exit" in result.final_output.lower()


async def test_a_model_that_chooses_a_shell_does_not_go_past_the_rules_about_code() -> None:
    rule = {
        "name": "no-curl",
        "condition": {"field": "code", "operator": "contains", "value": "curl"},
        "action": "deny",
        "message": "no curl here",
    }
    policy = {"rules": [rule], "defaults": {"action": "allow"}}

    async def said(cmd: str, **more: Any) -> str:
        agent = SandboxAgent(
            name="worker",
            model=Scripted("exec_command", {"cmd": cmd, **more}),
            capabilities=[Shell()],
            instructions="work",
        )
        sandbox = SandboxRunConfig(client=BrigSandboxClient(backend="native", policy=policy))
        config = RunConfig(sandbox=sandbox, tracing_disabled=True)
        return str((await Runner.run(agent, "go", run_config=config)).final_output)

    for more in ({}, {"shell": "bash"}, {"shell": "/bin/sh"}, {"shell": "bash", "login": False}):
        assert "no curl here" in await said("echo marker; curl x", **more)
        assert "marker" in await said("echo marker", **more)
    assert "rules about code must see" in await said("curl x", shell="zsh")


def _archive(name: str) -> io.BytesIO:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"data"))
    data.seek(0)
    return data
