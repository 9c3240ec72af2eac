"""The native module carries all that is needed."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

import brig
from brig import _native

INTERP = 3


def programs(image: bytes) -> list[list[int]]:
    """The kinds of segments of each executable within a file, the file itself left out."""
    found, at = [], image.find(b"\x7fELF\x02\x01\x01", 1)
    while at != -1:
        kind, machine = struct.unpack_from("<HH", image, at + 16)
        offset, size, count = *struct.unpack_from("<Q", image, at + 32), *struct.unpack_from("<HH", image, at + 54)
        # A real header, and not the text of a program that looks for one.
        if kind in (2, 3) and machine in (62, 183) and offset == 64 and size == 56 and 0 < count < 64:
            found.append([struct.unpack_from("<I", image, at + offset + n * size)[0] for n in range(count)])
        at = image.find(b"\x7fELF\x02\x01\x01", at + 1)
    return found


def test_the_embedded_programs_are_static() -> None:
    """Guest, stand-in and tool client run in any root file system: none asks for a dynamic linker."""
    image = Path(str(_native.__file__)).read_bytes()
    embedded = programs(image)
    assert len(embedded) == 3, embedded
    assert all(INTERP not in segments for segments in embedded)
    # The check sees a dynamic linker where there is one.
    assert INTERP in programs(b"." + Path("/bin/sh").read_bytes())[0]


def test_an_import_loads_no_more_than_is_needed() -> None:
    """It is waited for by every program."""
    code = "import sys; before = set(sys.modules); import brig; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "brig._native" in loaded
    assert not loaded & {"asyncio", "logging", "pathlib", "urllib.parse", "brig._tools", "brig.audit"}, loaded
    # All of it is there all the same.
    for name in brig.__all__:
        assert getattr(brig, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        brig.nothing  # type: ignore[attr-defined]  # noqa: B018
