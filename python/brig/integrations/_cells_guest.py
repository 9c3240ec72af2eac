"""Runs inside the sandbox, before and after a cell: keeps its variables for the next one.

Beside it is ``cloudpickle``. State that code changed can only harm what runs in the same sandbox.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import pickle
import sys
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
STATE = os.path.join(HERE, "state")
PACKAGES = os.path.join(HERE, "packages")
ANSWER = os.path.join(HERE, "answer.json")

# What the host takes, which is more.
LONGEST = 256 * 1024
LOST = 1000
NAME = 200

_answer: dict[str, Any] = {"cell": os.environ.get("CELL"), "value": None, "error": None, "lost": []}


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: Any, names: dict[str, Any]) -> None:
        super().__init__(data)
        self._names = names

    def persistent_load(self, _: Any) -> Any:
        return self._names


def _dumps(items: dict[str, Any], names: dict[str, Any]) -> bytes:
    # Where this file is when it runs.
    from .cloudpickle import Pickler  # type: ignore[import-not-found]

    class Kept(Pickler):  # type: ignore[misc]
        # Functions share the variables of the cells, and not a copy of them.
        def persistent_id(self, value: Any) -> str | None:
            return "names" if value is names else None

    data = io.BytesIO()
    pickler = Kept(data)
    pickler.globals_ref[id(names)] = names
    pickler.dump(items)
    return data.getvalue()


def begin(names: dict[str, Any]) -> None:
    """Brings back the variables, and keeps them when the program ends."""
    before = dict(names)
    sys.path.append(PACKAGES)
    try:
        with open(STATE, "rb") as file:
            names.update(_Unpickler(file, names).load())
    except FileNotFoundError:
        pass
    except Exception as error:
        sys.stderr.write(f"the variables of the cells before are lost: {error}\n")
    show = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        _answer["error"] = {"name": kind.__name__, "value": str(error)}
        show(kind, error, trace)

    sys.excepthook = hook
    atexit.register(_end, names, before)


def value(last: Any) -> None:
    """Notes the value of the last expression."""
    if last is not None:
        try:
            text = json.dumps(last, allow_nan=False)
            # Only what JSON gives back as it was.
            if len(text) <= LONGEST and json.loads(text) == last:
                _answer["value"] = {"json": text}
                return
        except Exception:
            pass
        try:
            text = repr(last)
        except Exception as error:
            text = f"<{type(last).__name__} without a text: {type(error).__name__}>"
        _answer["value"] = {"text": text if len(text) <= LONGEST else text[:LONGEST] + "…"}


def _end(names: dict[str, Any], before: dict[str, Any]) -> None:
    items = {
        name: value
        for name, value in names.items()
        if not (name.startswith("__") and name.endswith("__")) and (name not in before or before[name] is not value)
    }
    items.pop("brig_cells", None)
    try:
        data = _dumps(items, names)
    except Exception:
        for name in list(items):
            try:
                _dumps({name: items[name]}, names)
            except Exception:
                _answer["lost"].append(name)
                del items[name]
        data = _dumps(items, names)
    _answer["lost"] = [name for name in _answer["lost"] if len(name) <= NAME][:LOST]
    _write(STATE, data)
    _write(ANSWER, json.dumps(_answer).encode())


def _write(path: str, data: bytes) -> None:
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.replace(path + ".new", path)
