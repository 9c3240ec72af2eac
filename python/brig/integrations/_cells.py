"""Python in cells: each sees the variables of those before, like in a notebook.

Each cell is an execution of its own, so that the policy sees its code, the limits hold for it, and it is recorded. What
it leaves in its variables is in the workspace, in ``brig_cells``, and only the sandbox reads it.
"""

from __future__ import annotations

import ast
import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import Core
from .._errors import Error
from ._commands import Outcome, run
from ._steps import Steps, core

if TYPE_CHECKING:
    from .._async import AsyncSandbox
    from .._sandbox import Sandbox

_DIRECTORY = "brig_cells"
_ANSWER = "answer.json"
_LARGEST = 1 << 20
_PARTS = 64
# The same in `_cells_guest.py`.
_LOST = 1000
_NAME = 200
_FIRST = "import brig_cells; brig_cells.begin(globals())\n"


@dataclass(frozen=True)
class Cell:
    """What came out of a cell. ``value`` is the one of its last expression: plain data, or else its text."""

    outcome: Outcome
    value: Any = None
    error: tuple[str, str] | None = None
    lost: tuple[str, ...] = ()


class Cells:
    """The cells of one sandbox. One of them at a time."""

    def __init__(self, box: Sandbox | AsyncSandbox, *, largest: int = _LARGEST) -> None:
        self._core: Core = core(box)
        # What an answer may have. Above 1 MiB it must have few parts, like an image.
        self._largest = largest

    def run(self, code: str, *, timeout: float | None = None) -> Steps[Cell]:
        """Runs a cell."""
        yield from self._prepare()
        name = uuid.uuid4().hex
        outcome = yield from run(self._core, prepared(code), env={"CELL": name}, timeout=timeout)
        try:
            data = yield from self._answer()
            return _cell(outcome, data, name)
        except (Error, ValueError, RecursionError):
            # Nothing if the cell was ended before, and nothing of what only other code can have written.
            return Cell(outcome)

    def _prepare(self) -> Steps[None]:
        """Brings in what runs inside. It is gone if a state from before was restored."""
        import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]

        try:
            there = yield self._core.entries(_DIRECTORY)
        except Error:
            there = []
        if any(one.name == "__init__.py" for one in there):
            return

        for file in sorted(Path(cloudpickle.__file__).parent.glob("*.py")):
            yield self._core.write(f"{_DIRECTORY}/cloudpickle/{file.name}", file.read_bytes(), 0o644)
        guest = Path(__file__).with_name("_cells_guest.py")
        yield self._core.write(f"{_DIRECTORY}/__init__.py", guest.read_bytes(), 0o644)

    def _answer(self) -> Steps[bytes]:
        """What the cell said about itself."""
        entries = yield self._core.entries(_DIRECTORY)
        # Its size first: reading takes memory of this process.
        if not any(one.name == _ANSWER and one.kind == "file" and one.size <= self._largest for one in entries):
            raise ValueError("no answer, or one that is too large")
        data: bytes = yield self._core.read(f"{_DIRECTORY}/{_ANSWER}")
        return data


def _cell(outcome: Outcome, data: bytes, name: str) -> Cell:
    """Any code of the sandbox may have written this. ValueError if it is not as the cell writes it."""
    if len(data) > _LARGEST and sum(map(data.count, (b"[", b"{", b",", b":"))) > _PARTS:
        raise ValueError("an answer with too many parts")
    answer = json.loads(data)
    if not isinstance(answer, dict) or answer.get("cell") != name:
        raise ValueError("the answer of another cell")
    error, lost, value = answer.get("error"), answer.get("lost"), answer.get("value")
    if error is not None and not (isinstance(error, dict) and _texts([error.get("name"), error.get("value")])):
        raise ValueError("an error that has no name and value")
    if not isinstance(lost, list) or len(lost) > _LOST or not _texts(lost) or any(len(one) > _NAME for one in lost):
        raise ValueError("variables that are no names")
    found = None if error is None else (error["name"], error["value"])
    return Cell(outcome, _value(value), found, tuple(lost))


def _texts(given: list[Any]) -> bool:
    return all(isinstance(one, str) for one in given)


def _value(given: Any) -> Any:
    if given is None:
        return None
    ((kind, text),) = given.items() if isinstance(given, dict) and len(given) == 1 else (("", None),)
    if kind not in ("json", "text") or not isinstance(text, str) or len(text) > _LARGEST:
        raise ValueError("a value that is neither data nor text")
    return json.loads(text) if kind == "json" else text


def prepared(code: str) -> str:
    """The code with a first line that brings back the variables, and its last expression noted.

    >>> print(prepared("x = 1\\nx + 1"), end="")
    import brig_cells; brig_cells.begin(globals())
    x = 1
    brig_cells.value((x + 1))
    """
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _FIRST + code
    lines = code.encode().splitlines(keepends=True)
    if body and isinstance(body[-1], ast.Expr):
        last = body[-1].value
        assert last.end_lineno is not None and last.end_col_offset is not None
        _insert(lines, last.end_lineno, last.end_col_offset, b"))")
        _insert(lines, last.lineno, last.col_offset, b"brig_cells.value((")
    first = 0
    for one in body:
        if isinstance(one, ast.ImportFrom) and one.module == "__future__":
            first = one.end_lineno or first
    if first and not lines[first - 1].endswith(b"\n"):
        lines[first - 1] += b"\n"
    lines.insert(first, _FIRST.encode())
    return b"".join(lines).decode()


def _insert(lines: list[bytes], number: int, column: int, what: bytes) -> None:
    line = lines[number - 1]
    lines[number - 1] = line[:column] + what + line[column:]


