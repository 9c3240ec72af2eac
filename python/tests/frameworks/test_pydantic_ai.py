"""Pydantic AI's own suite for workspaces, and what is Brig's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.workspaces import (
    Workspace,
    WorkspaceBackend,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from brig.integrations import pydantic_ai as integration
from brig.integrations.pydantic_ai import BrigBackend, BrigWorkspace


@pytest.fixture
def anyio_backend() -> str:
    """Brig's async interface is for asyncio."""
    return "asyncio"


class TestSuite(WorkspaceBackendSuite):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[WorkspaceBackend]:
        backend = BrigBackend(backend="native")
        yield backend
        await backend.destroy()

    @pytest.fixture
    def fresh_backend(self) -> Callable[[], WorkspaceBackend]:
        return lambda: BrigBackend(backend="native")

    @pytest.fixture
    def attach_backend(self) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: BrigBackend(ref, backend="native")

    @pytest.fixture
    def destroy_environment(self) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        async def destroy(backend: WorkspaceBackend) -> None:
            assert isinstance(backend, BrigBackend)
            await backend.destroy()

        return destroy

    async def test_cancellation_stops_foreground_work(self) -> None:  # type: ignore[override]
        pytest.skip("looks for a process of another command by its id, which commands don't see; see below")


async def test_cancelling_ends_the_command() -> None:
    backend = BrigBackend(backend="native")
    try:
        beat = "i=0; while true; do i=$((i+1)); echo $i > beat.new; mv beat.new beat; sleep 0.02; done"
        running = asyncio.ensure_future(backend.run(beat, shell=True))

        async def last() -> int:
            return int((await backend.run("cat beat || echo 0", shell=True)).stdout)

        async with asyncio.timeout(60):
            while await last() < 3:  # It runs.
                assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        async with asyncio.timeout(60):
            before = -1
            # The count stands still for as long as twenty beats.
            while (now := await last()) != before:
                before = now
                await asyncio.sleep(0.4)
    finally:
        await backend.destroy()


async def test_a_kept_workspace_is_found_by_its_ref(tmp_path: Path) -> None:
    first = BrigBackend(backend="native", state_dir=tmp_path)
    await Workspace(first).write_text("note", "kept")
    ref = first.ref
    assert ref is not None
    await first.close()
    assert ref.id not in integration._live  # As in another process.
    second = BrigBackend(ref, backend="native", state_dir=tmp_path)
    assert await Workspace(second).read_text("note") == "kept"
    await second.destroy()
    with pytest.raises(WorkspaceUnavailableError):
        await BrigBackend(ref, backend="native", state_dir=tmp_path).working_dir()


async def test_a_denied_command_is_an_answer_and_too_much_output_is_not() -> None:
    rule = {
        "name": "no",
        "condition": {"field": "code", "operator": "contains", "value": "forbidden"},
        "action": "deny",
    }
    backend = BrigBackend(
        backend="native", output=4096, policy={"rules": [rule], "defaults": {"action": "allow"}}
    )
    try:
        denied = await backend.run("echo forbidden", shell=True)
        assert denied.exit_code == 126 and "denied" in denied.stderr
        # Nor as an argument of a shell.
        for argv in (["bash", "-c", "echo forbidden"], ["/bin/sh", "-c", 'echo "$1"', "sh", "forbidden"]):
            denied = await backend.run(argv)
            assert denied.exit_code == 126 and "denied" in denied.stderr
        assert (await backend.run(["/bin/sh", "-c", 'echo "$1"', "sh", "fine"])).stdout == "fine\n"
        with pytest.raises(WorkspaceOutputLimitError) as much:
            await backend.run("yes | head -c 100000", shell=True)
        assert much.value.limit == 4096 and much.value.stdout.startswith("y\n")
    finally:
        await backend.destroy()


async def test_an_agent_works_in_a_sandbox_and_goes_on_in_it() -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return ModelResponse(parts=[TextPart(str(last.content))])
        return ModelResponse(parts=[ToolCallPart("shell", {"command": "echo x >> log; wc -l < log"})])

    agent = Agent(FunctionModel(model), capabilities=[BrigWorkspace(backend="native")])

    @agent.tool
    async def shell(ctx: RunContext[None], command: str) -> str:
        return (await ctx.workspace.run(command, shell=True)).stdout

    first = await agent.run("go")
    assert first.output == "1\n"
    second = await agent.run("again", message_history=first.all_messages())
    assert second.output == "2\n"
    (ref,) = {one.workspace_ref for one in second.all_messages() if isinstance(one, ModelResponse)} - {None}
    assert ref is not None and ref.provider == "brig"
    await BrigBackend(ref, backend="native").destroy()


def _without(word: str) -> dict[str, Any]:
    rule = {
        "name": "no",
        "condition": {"field": "code", "operator": "contains", "value": word},
        "action": "deny",
    }
    return {"rules": [rule], "defaults": {"action": "allow"}}


async def test_a_ref_does_not_lead_into_a_sandbox_with_other_options(tmp_path: Path) -> None:
    lenient = BrigBackend(backend="native", policy=_without("other"))
    try:
        assert (await lenient.run("echo curl", shell=True)).exit_code == 0
        for options in ({"policy": _without("curl")}, {"policy": _without("other"), "network": ["example.com"]}, {}):
            strict = BrigBackend(lenient.ref, backend="native", **options)  # type: ignore[arg-type]
            with pytest.raises(WorkspaceUnavailableError, match="other options"):
                await strict.run("echo curl", shell=True)
            with pytest.raises(WorkspaceUnavailableError, match="other options"):
                await strict.close()
            with pytest.raises(WorkspaceUnavailableError, match="other options"):
                await strict.destroy()
        # The same policy from a file is the same policy; what is in the file counts, not its name.
        path = tmp_path / "policy.json"
        path.write_text(json.dumps(_without("other")))
        same = BrigBackend(lenient.ref, backend="native", policy=path)
        path.write_text(json.dumps(_without("curl")))
        with pytest.raises(WorkspaceUnavailableError, match="other options"):
            await same.working_dir()
        again = BrigBackend(lenient.ref, backend="native", policy=_without("other"))
        assert (await again.run("echo curl", shell=True)).stdout == "curl\n"
    finally:
        await lenient.destroy()
    assert lenient.ref is not None and lenient.ref.id not in integration._live


async def test_a_sandbox_that_is_gone_is_forgotten() -> None:
    backend = BrigBackend(backend="native")
    await backend.working_dir()
    assert backend.ref is not None
    await integration._live[backend.ref.id].box.destroy()
    with pytest.raises(WorkspaceUnavailableError):
        await BrigBackend(backend.ref, backend="native").working_dir()
    assert backend.ref.id not in integration._live


async def test_a_kept_workspace_that_is_opened_twice_at_once_is_one(tmp_path: Path, monkeypatch: Any) -> None:
    first = BrigBackend(backend="native", state_dir=tmp_path)
    await first.working_dir()
    ref = first.ref
    assert ref is not None
    real, opened = integration._live[ref.id].box, []

    class Fake:
        """What the engine would give back twice."""

        status = "ready"
        closed = False

        async def close(self) -> None:
            self.closed = True

    async def opens() -> Any:
        opened.append(Fake())
        await asyncio.sleep(0)
        return opened[-1]

    integration._live.clear()
    monkeypatch.setattr(integration.AsyncSandbox, "open", lambda *_, **__: opens())
    backends = [BrigBackend(ref, backend="native", state_dir=tmp_path) for _ in range(2)]
    found = await asyncio.gather(*(one._box() for one in backends))
    assert len(opened) == 2 and found[0] is found[1]
    assert sorted(one.closed for one in opened) == [False, True]
    integration._live.clear()
    await real.destroy()
