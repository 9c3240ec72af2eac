"""Policies that are objects with attributes, as mappings. What can't be read is an error, never left out."""

from __future__ import annotations

import enum
import inspect
import os
import types
from collections.abc import Mapping, Sequence, Set
from typing import Any

# No document is nested so deep.
_DEEPEST = 16
# What is a method instead of data is an error if it has one of these names. Others are helpers, such as `to_yaml`.
_KEYS = frozenset(
    """
    version name description rules defaults inherit scope network_allowlist tool_allowlist record_tool_arguments
    sandbox_mounts command_denylist command_allowlist command_mode max_processes max_disk_mb max_output_bytes env waive
    action max_tokens max_tool_calls confidence_threshold max_cpu max_memory_mb timeout_seconds network_default
    condition priority message override field operator value input_dir output_dir
    """.split()
)


def plain(given: object) -> dict[str, Any]:
    """The attributes of a policy, whether of the object or of its class, with those of the objects in it."""
    found = _attributes(given, "policy", (id(given),))
    if not found:
        raise TypeError(f"not a policy: {type(given).__name__}")
    return found


def _value(value: Any, place: str, outer: tuple[int, ...]) -> Any:
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if len(outer) > _DEEPEST or id(value) in outer:
        raise ValueError(f"{place}: it contains itself, or is nested too deep")
    inner = (*outer, id(value))
    fields = getattr(value, "_asdict", None)
    if isinstance(value, tuple) and callable(fields):
        value = fields()
    if isinstance(value, Mapping):
        return {key: _value(one, f"{place}.{key}", inner) for key, one in value.items()}
    if isinstance(value, (Sequence, Set)) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [_value(one, f"{place}[{at}]", inner) for at, one in enumerate(value)]
    if callable(getattr(type(value), "model_dump", None)):
        found = value.model_dump(mode="json")
    else:
        found = _attributes(value, place, inner)
    if not found:
        raise ValueError(f"{place}: nothing can be read from a `{type(value).__name__}`; give a mapping")
    return found


def _attributes(value: Any, place: str, outer: tuple[int, ...]) -> dict[str, Any]:
    kind = value if isinstance(value, type) else type(value)
    if hasattr(kind, "__getattr__"):
        raise ValueError(f"{place}: the attributes of a `{kind.__name__}` can't be listed; give a mapping")
    # Others, such as dates, have attributes that are not data.
    if not hasattr(value, "__dict__") and not any("__slots__" in vars(one) for one in kind.__mro__):
        return {}
    own = {} if value is kind else getattr(value, "__dict__", {})
    found = {}
    for name in sorted({*dir(value), *own}):
        if name.startswith("_"):
            continue
        entry = f"{place}.{name}"
        try:
            one = getattr(value, name)
        except AttributeError as error:
            if isinstance(inspect.getattr_static(kind, name, None), types.MemberDescriptorType):
                continue  # A slot that was never set.
            raise ValueError(f"{entry}: it can't be read: {error}") from error
        if not inspect.isroutine(one):
            found[name] = _value(one, entry, outer)
        elif name in _KEYS or name in own:
            raise ValueError(f"{entry}: it is a function; give a value")
    return found
