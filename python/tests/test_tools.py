"""Functions of the host that code may call."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any, Literal, Optional

import pytest

import brig


def fetch(query: str, limit: int = 3, *, kind: Literal["a", "b"] = "a") -> list[str]:
    """Searches.

    Args:
        query: what to look for
        limit: how many answers,
            at most
    """
    return [f"{query}-{n}" for n in range(limit)]


def test_signatures_become_schemas() -> None:
    tool = brig.Tool.of(fetch)
    assert (tool.name, tool.description) == ("fetch", "Searches.")
    assert tool.schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "what to look for"},
            "limit": {"type": "integer", "description": "how many answers, at most", "default": 3},
            "kind": {"enum": ["a", "b"], "default": "a"},
        },
        "required": ["query"],
        "additionalProperties": False,
    }

    def more(
        a: Optional[int], b: dict[str, float], c: Annotated[list[bool], "flags"], d: Any
    ) -> None: ...

    properties = brig.Tool.of(more).schema["properties"]
    assert properties["a"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert properties["b"]["additionalProperties"] == {"type": "number"}
    assert properties["c"]["description"] == "flags"
    assert properties["d"] == {}

    def bad(x: set[int]) -> None: ...

    def worse(*rest: int) -> None: ...

    with pytest.raises(TypeError, match="tool bad: the parameter 'x'"):
        brig.Tool.of(bad)
    with pytest.raises(TypeError, match="can't be given by name"):
        brig.Tool.of(worse)


CALL = """
from brig_tools import call_tool
print(call_tool("fetch", query="x", limit=2))
"""


def test_code_calls_a_function() -> None:
    with brig.Sandbox(tools=[fetch]) as box:
        result = box.run(CALL)
        assert result.stdout == "['x-0', 'x-1']\n", result.stderr
        assert result.to_dict()["tools"][0]["tool"] == "fetch"


def test_a_policy_decides_which() -> None:
    policy = {"defaults": {"action": "allow"}, "tool_allowlist": ["other"]}

    def other() -> int:
        return 1

    with brig.Sandbox(tools=[fetch, other], policy=policy) as box:
        result = box.run(CALL)
        assert not result.ok
        assert [(one.kind, one.what) for one in result.denied] == [("tool", "fetch")]
        good = box.run('from brig_tools import call_tool; print(call_tool("other"))')
        assert good.stdout == "1\n", good.stderr
    with pytest.raises(brig.InvalidArgument, match="no tool is named `other`"):
        brig.Sandbox(tools=[fetch], policy=policy)


def test_what_fails_tells_no_secret() -> None:
    def secret() -> None:
        raise ValueError("/home/me/key")

    def told() -> None:
        raise brig.ToolError("try again later")

    def odd() -> object:
        return object()

    code = """
from brig_tools import call_tool
for name in ("secret", "told", "odd"):
    try:
        call_tool(name)
    except Exception as error:
        print(name, error)
"""
    with brig.Sandbox(tools=[secret, told, odd]) as box:
        out = box.run(code).stdout
    assert "ValueError" in out and "/home/me/key" not in out
    assert "try again later" in out
    assert "odd" in out and "TypeError" in out


async def test_async_functions_run_in_the_loop_of_the_sandbox() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def where(query: str) -> str:
        """Says hello."""
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        return query.upper()

    code = 'from brig_tools import call_tool; print(call_tool("where", query="hi"))'
    async with brig.AsyncSandbox(tools=[where]) as box:
        assert (await box.run(code)).stdout == "HI\n"
        assert loops == [asyncio.get_running_loop()]


def test_async_functions_run_without_a_loop_too() -> None:
    async def where(query: str) -> str:
        await asyncio.sleep(0)
        return query.upper()

    code = 'from brig_tools import call_tool; print(call_tool("where", query="hi"))'
    with brig.Sandbox(tools=[where]) as box:
        assert box.run(code).stdout == "HI\n"


async def test_a_call_that_is_not_wanted_any_more_is_cancelled() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            ended.set()
            raise

    code = 'from brig_tools import call_tool; call_tool("slow")'
    async with brig.AsyncSandbox(tools=[slow]) as box:
        task = asyncio.create_task(box.run(code))
        await asyncio.wait_for(begun.wait(), 50)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), 50)


def test_functions_are_called_in_threads_of_their_own() -> None:
    seen: list[threading.Thread] = []

    def note() -> None:
        seen.append(threading.current_thread())

    with brig.Sandbox(tools={"note": note}) as box:
        box.run('from brig_tools import call_tool; call_tool("note")', check=True)
    assert seen and seen[0] is not threading.main_thread()
