"""Policy files as objects with attributes, as AGT's translations of policies take them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def read(path: str) -> Any:
    """The document of a YAML file. Needs PyYAML, as in AGT."""
    try:
        import yaml  # type: ignore[import-untyped, unused-ignore]
    except ImportError as missing:
        raise ImportError("PyYAML is required to load policy YAML: pip install pyyaml") from missing
    with open(path, encoding="utf-8") as file:
        document = yaml.safe_load(file) or {}
    if not isinstance(document, dict):
        raise ValueError(f"policy YAML at '{path}' must be a mapping, got {type(document).__name__}")
    return _object(document)


def _object(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{str(key): _object(one) for key, one in value.items()})
    return value
