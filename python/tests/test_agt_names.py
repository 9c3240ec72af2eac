"""Every public name of AGT's package is there, with its parameters: names recorded from its wheels."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

RECORDED: dict[str, dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "agt-names.json").read_text()
)
# Brig is for Linux.
LEFT_OUT = {
    "agent_sandbox._hardening.PROTECTED_PATHS_WINDOWS",
    "agent_sandbox._hardening.PROTECTED_PATHS_WINDOWS_ROOT_ONLY",
}


def parameters(function: Any) -> list[str]:
    found = inspect.signature(function).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    names = [f"*{one.name}" if one.kind is keyword else one.name for one in found]
    return [name for name in names if name not in ("self", "cls")]


def differs(recorded: list[str], ours: list[str]) -> bool:
    """Ours may take more by keyword, and take by position what AGT takes only by keyword."""
    for at, name in enumerate(recorded):
        if name.startswith("*"):
            if name not in ours and name[1:] not in ours:
                return True
        elif at >= len(ours) or ours[at] != name:
            return True
    return False


@pytest.mark.parametrize("version", sorted(RECORDED))
def test_all_names_are_there(version: str) -> None:
    missing = []
    for module, names in RECORDED[version].items():
        try:
            own = importlib.import_module(f"brig.{module}")
        except ImportError:
            missing.append(module)
            continue
        for name, inside in names.items():
            path = f"{module}.{name}"
            thing = getattr(own, name, None)
            if thing is None:
                if path not in LEFT_OUT:
                    missing.append(path)
            elif isinstance(inside, list) and differs(inside, parameters(thing)):
                missing.append(f"{path}({', '.join(inside)}): ours has {parameters(thing)}")
            elif isinstance(inside, dict):
                fields = {one.name for one in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
                for member, given in inside.items():
                    if member not in fields and not hasattr(thing, member):
                        missing.append(f"{path}.{member}")
                    elif given is not None and differs(given, parameters(getattr(thing, member))):
                        ours = parameters(getattr(thing, member))
                        missing.append(f"{path}.{member}({', '.join(given)}): ours has {ours}")
    assert not missing, "\n".join(missing)


def test_the_check_sees_what_is_missing() -> None:
    assert differs(["a", "b"], ["b", "a"]) and differs(["a"], []) and differs(["*a"], ["b"])
    assert not differs(["a", "*b"], ["a", "*c", "*b"]) and not differs(["*a"], ["a"])
    assert len(RECORDED) == 2 and all(len(modules) > 10 for modules in RECORDED.values())
