"""The audit log: every decision and everything that ran, in a log that can't be changed unnoticed."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from . import _native

__all__ = ["Head", "Verified", "verify"]


@dataclass(frozen=True)
class Head:
    """A signed head: how many records the log has, and the root of the tree over them."""

    origin: str
    size: int
    root: str


@dataclass(frozen=True)
class Verified:
    """A log that is what was written. ``unsigned`` records are after the newest signed head."""

    records: int
    segments: int
    unsigned: int
    key_rotations: int
    pruned: int
    head: Head


def verify(
    path: str | os.PathLike[str],
    *,
    head: str | None = None,
    key: str | os.PathLike[str] | None = None,
) -> Verified:
    """Reads the whole log. Raises `brig.AuditError` if it is not what was written.

    Without a signed ``head`` that was kept elsewhere, a log that was replaced as a whole can't be detected. ``key``
    is the file of a public key that was kept elsewhere; without it, the one beside the log is used.
    """
    text = None
    if key is not None:
        with open(key, encoding="utf-8") as file:
            text = file.read()
    found = json.loads(_native.audit_verify(path, head, text))
    return Verified(**{**found, "head": Head(**found["head"])})
