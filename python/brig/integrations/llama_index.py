"""Sandboxes for agents of LlamaIndex.

    async with brig.AsyncSandbox(policy="policy.yaml") as box:
        agent = CodeActAgent(code_execute_fn=code_execute_fn(box), llm=llm)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ._cells import Cells
from ._commands import run, shell
from ._extras import missing
from ._steps import adrive, core, drive

try:
    import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: F401
    from llama_index.core.tools.tool_spec.base import BaseToolSpec
except ImportError as error:
    raise missing("llama_index", error) from error

if TYPE_CHECKING:
    from .._async import AsyncSandbox
    from .._sandbox import Sandbox

__all__ = ["BrigToolSpec", "code_execute_fn"]


def code_execute_fn(box: Sandbox | AsyncSandbox) -> Callable[[str], Awaitable[dict[str, Any]]]:
    """The function that a ``CodeActAgent`` runs its code with. What the code leaves in its variables is kept.

    Functions that the code may call are `tools` of the sandbox.
    """
    cells = Cells(box)

    async def execute(code: str) -> dict[str, Any]:
        """Runs Python code in a sandbox, and gives back its output and the value of its last expression."""
        cell = await adrive(cells.run(code))
        answer: dict[str, Any] = {
            "stdout": cell.outcome.stdout.decode("utf-8", "replace"),
            "stderr": cell.outcome.stderr.decode("utf-8", "replace"),
            "exit_code": cell.outcome.exit_code,
        }
        if cell.value is not None:
            answer["value"] = cell.value
        if cell.lost:
            answer["not_kept"] = list(cell.lost)
        return answer

    return execute


class BrigToolSpec(BaseToolSpec):
    """Tools for any agent: Python code and shell commands, each in an execution of its own.

    For ``FunctionAgent(tools=BrigToolSpec(box).to_tool_list())``.
    """

    spec_functions = ["code_interpreter", "shell"]

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    def code_interpreter(self, code: str) -> str:
        """Runs Python code in a sandbox and gives back what it prints. Files are kept between calls, variables are not.

        Args:
            code: the Python code
        """
        return drive(run(core(self._box), code)).text

    def shell(self, command: str) -> str:
        """Runs a shell command in a sandbox and gives back what it prints. Files are kept between calls.

        Args:
            command: the command
        """
        return drive(shell(core(self._box), command)).text
