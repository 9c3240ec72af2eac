"""Python functions as tools: their signatures and docstrings become JSON Schema."""

from __future__ import annotations

import inspect
import json
import logging
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Union

from . import _native
from ._errors import ToolError

if TYPE_CHECKING:
    import asyncio

_log = logging.getLogger("brig")

_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    list: {"type": "array"},
    dict: {"type": "object"},
    Any: {},
}


@dataclass(frozen=True)
class Tool:
    """A function of this program that code in a sandbox may call.

    A plain function becomes one by itself; this class is for another name, description, schema or time limit.
    """

    function: Callable[..., Any]
    name: str
    description: str
    schema: dict[str, Any]
    timeout: float | None = None

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        schema: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Tool:
        """Takes from the function what is not given.

        >>> def add(a: int, b: int = 1) -> int:
        ...     '''Adds two numbers.'''
        ...     return a + b
        >>> Tool.of(add).schema["required"]
        ['a']
        """
        summary, parameters = _docstring(inspect.getdoc(function) or "")
        return cls(
            function,
            name or str(getattr(function, "__name__", type(function).__name__)),
            summary if description is None else description,
            _schema(function, parameters) if schema is None else schema,
            timeout,
        )


def tools_of(given: Iterable[Tool | Callable[..., Any]] | Mapping[str, Callable[..., Any]]) -> list[Tool]:
    """Functions, or functions by name."""
    if isinstance(given, Mapping):
        return [Tool.of(function, name=name) for name, function in given.items()]
    return [one if isinstance(one, Tool) else Tool.of(one) for one in given]


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and those of the parameters from a section `Args:`."""
    before, found, section = text.partition("\nArgs:\n")
    if not found:
        return text.strip(), {}
    parameters: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line and not line.startswith(" "):
            break
        started = re.match(r"\s+\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)", line)
        if started:
            name = started[1]
            parameters[name] = started[2]
        elif name and line.strip():
            parameters[name] += " " + line.strip()
    return before.strip(), parameters


def _schema(function: Callable[..., Any], described: Mapping[str, str]) -> dict[str, Any]:
    label = getattr(function, "__name__", repr(function))
    hints = typing.get_type_hints(
        function if inspect.isroutine(function) else type(function).__call__, include_extras=True
    )
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"tool {label}: the parameter {name!r} can't be given by name")
        try:
            one = _type(hints.get(name, Any))
        except TypeError as error:
            raise TypeError(f"tool {label}: the parameter {name!r}: {error}") from None
        if name in described:
            one["description"] = described[name]
        if parameter.default is parameter.empty:
            required.append(name)
        else:
            try:
                json.dumps(parameter.default)
                one["default"] = parameter.default
            except (TypeError, ValueError):
                pass
        properties[name] = one
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _type(hint: Any) -> dict[str, Any]:
    try:
        if hint in _SIMPLE:
            return dict(_SIMPLE[hint])
    except TypeError:
        pass
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        one = _type(arguments[0])
        one.update({"description": note for note in arguments[1:] if isinstance(note, str)})
        return one
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type(one) for one in arguments]}
    if origin is list:
        return {"type": "array", "items": _type(arguments[0])}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _type(arguments[1])}
    raise TypeError(f"{hint} has no JSON Schema here; give one with Tool.of(…, schema=…)")


class Caller:
    """What the native module calls, in a thread of its own."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        # The event loop of an AsyncSandbox: async tools run there.
        self.loop: asyncio.AbstractEventLoop | None = None

    def description(self) -> str:
        """JSON for the native module."""
        return json.dumps(
            {
                "name": self.tool.name,
                "description": self.tool.description,
                "input_schema": self.tool.schema,
                "timeout": self.tool.timeout,
            }
        )

    def __call__(self, arguments: str, call: _native.Call) -> tuple[bool, str]:
        try:
            answer = self._call(json.loads(arguments), call)
            return True, json.dumps(answer, allow_nan=False)
        except ToolError as error:
            return False, str(error)
        except Exception as error:
            _log.warning("tool %s failed", self.tool.name, exc_info=error)
            return False, f"the tool failed: {type(error).__name__}"

    def _call(self, arguments: dict[str, Any], call: _native.Call) -> Any:
        answer = self.tool.function(**arguments)
        if not inspect.isawaitable(answer):
            return answer
        return run_awaitable(answer, self.loop, call)


def run_awaitable(
    answer: Any, loop: asyncio.AbstractEventLoop | None, call: _native.Call
) -> Any:
    """Waits for a coroutine: in the given loop, or in one of its own. Cancelled when it is not wanted."""
    import asyncio

    async def whole() -> Any:
        return await answer

    if loop is not None and loop.is_running():
        future = asyncio.run_coroutine_threadsafe(whole(), loop)
        call.on_unwanted(future.cancel)
        return future.result()

    async def stoppable() -> Any:
        own, task = asyncio.get_running_loop(), asyncio.ensure_future(whole())

        def stop() -> None:
            try:
                own.call_soon_threadsafe(task.cancel)
            except RuntimeError:
                pass  # It ended, and its loop is closed.

        call.on_unwanted(stop)
        return await task

    try:
        return asyncio.run(stoppable())
    except asyncio.CancelledError:
        raise RuntimeError("the call was cancelled") from None
