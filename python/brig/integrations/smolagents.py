"""smolagents' code in a sandbox.

    with BrigExecutor(policy="policy.yaml") as executor:
        agent = CodeAgent(tools=[], model=model, executor=executor)
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._config import Options
from .._sandbox import Sandbox
from ._answers import LARGEST, decode
from ._cells import Cells
from ._commands import run
from ._extras import missing
from ._steps import core, drive

try:
    import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: F401
    from smolagents.local_python_executor import CodeOutput
    from smolagents.monitoring import AgentLogger, LogLevel
    from smolagents.remote_executors import RemotePythonExecutor
    from smolagents.tools import get_tools_definition_code
    from smolagents.utils import AgentError
except ImportError as error:
    raise missing("smolagents", error) from error

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["BrigExecutor"]

_PACKAGES = "brig_cells/packages"

# What smolagents' own tool for answers can do without.
_OPTIONAL = re.compile(r"^(import (?:PIL|numpy)\b.*)$", re.MULTILINE)

_MISSING = f"""
import importlib.metadata, importlib.util, sys
sys.path.append({_PACKAGES!r})
def there(name):
    if importlib.util.find_spec(name.replace("-", "_")):
        return True
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False
print(*(name for name in sys.argv[1:] if not there(name)))
"""


class BrigExecutor(RemotePythonExecutor):
    """Runs the code of a ``CodeAgent``. Takes the options of a sandbox, or a sandbox of yours as ``box``.

    Each step is an execution of its own; what it leaves in its variables is there in the next one. Nothing that comes
    out of the sandbox is unpickled: a final answer is JSON with bytes and tuples, or a PNG image; other types are text.
    smolagents' tools are sent as source code and run inside; functions that should
    run in your process are `tools` of the sandbox.
    """

    def __init__(self, box: Sandbox | None = None, *, logger: Any = None, **options: Unpack[Options]) -> None:
        super().__init__([], logger or AgentLogger(level=LogLevel.ERROR), allow_pickle=False)
        if box is not None and options:
            raise TypeError("give either a sandbox or options for one")
        self._owned = box is None
        self.box = Sandbox(**options) if box is None else box
        self._cells = Cells(self.box, largest=LARGEST + (1 << 20))

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Runs the code of one step. An error in it is an ``AgentError``, which the model gets to see."""
        cell = drive(self._cells.run(code))
        outcome = cell.outcome
        logs = outcome.stdout.decode("utf-8", "replace")
        if cell.error is not None and cell.error[0] == self.FINAL_ANSWER_EXCEPTION:
            try:
                answer = decode(cell.error[1])
            except ValueError as error:
                raise AgentError(f"{logs}\n{error}", self.logger) from error
            return CodeOutput(output=answer, logs=logs, is_final_answer=True)
        stderr = outcome.stderr.decode("utf-8", "replace")
        if outcome.exit_code != 0:
            raise AgentError(f"{logs}\nExecuting code yielded an error:\n{stderr}", self.logger)
        for name in cell.lost:
            logs += f"\nThe variable `{name}` can't be kept for the next step."
        return CodeOutput(output=cell.value, logs=logs + stderr, is_final_answer=False)

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Sends the source code of tools, and installs what they import."""
        if "final_answer" in tools:
            self._patch_final_answer_with_exception(tools["final_answer"])
        others = [tool for name, tool in tools.items() if name != "final_answer"]
        needed = {name for tool in others for name in tool.to_dict()["requirements"]} - {"smolagents"}
        if needed:
            self.install_packages(sorted("pillow" if name == "PIL" else name for name in needed))
        code = _OPTIONAL.sub(r"try:\n    \1\nexcept ImportError:\n    pass", get_tools_definition_code(tools))
        self.logger.log(self.run_code_raise_errors(code).logs)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs what is not there, with the network that the sandbox has."""
        where = core(self.box)
        outcome = drive(run(where, ["python3", "-c", _MISSING, *additional_imports]))
        if wanted := outcome.stdout.decode("utf-8", "replace").split():
            install = ["python3", "-m", "pip", "install", "--quiet", "--no-input", "--retries", "1", "--target", _PACKAGES, *wanted]
            outcome = drive(run(where, install))
        if outcome.exit_code != 0:
            raise AgentError(f"{' '.join(additional_imports)} can't be installed: {outcome.text}", self.logger)
        return additional_imports

    def cleanup(self) -> None:
        """Ends the sandbox, unless it is yours."""
        if self._owned:
            self.box.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cleanup()
