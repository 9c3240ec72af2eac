"""Files of a sandbox, at any path that its code can reach.

They are read and written by commands in the sandbox, with the rights of its code and under its policy. So a path that
code made a link leads nowhere that the code could not go itself.
"""

from __future__ import annotations

import errno
import os

from .._core import Core
from .._errors import Error
from ._commands import Outcome, run
from ._steps import Steps

# Exit codes of the scripts: 100 and the number of the error.
_NUMBERS = (errno.EPERM, errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.EINVAL)

# Only regular files: a device or a pipe may have no end.
_SIZE = """
[ -e "$1" ] || exit 102
[ -d "$1" ] && exit 121
[ -f "$1" ] || exit 122
[ -r "$1" ] || exit 113
exec wc -c <"$1"
"""
_PART = 'tail -c "+$2" -- "$1" | head -c "$3"'
_WRITE = """
[ -d "$1" ] && exit 121
[ -e "$1" ] && ! [ -f "$1" ] && exit 122
parent=$(dirname -- "$1")
[ -d "$parent" ] || mkdir -p -- "$parent" || exit 120
[ -e "$1" ] && ! [ -w "$1" ] && exit 113
[ -e "$1" ] || [ -w "$parent" ] || exit 113
exec cat >"$1"
"""

# Less than the output that is kept of an execution by default.
_CHUNK = 512 * 1024


LIMIT = 64 << 20
"""The largest file that is read, if nothing else is said. It is in the memory of this process at once."""


def read(core: Core, path: str, *, limit: int = LIMIT) -> Steps[bytes]:
    """The content of a file, as long as it was at the beginning. OSError (EFBIG) if that is more than the limit."""
    outcome = yield from run(core, ["sh", "-c", _SIZE, "sh", path])
    _check(outcome, path)
    # The programs of an image may say anything.
    size = int(outcome.stdout) if outcome.stdout.strip().isdigit() and len(outcome.stdout) < 20 else -1
    if size < 0:
        raise Error(f"`{path}` could not be accessed: it has no size", code="file.failed")
    if size > limit:
        raise OSError(errno.EFBIG, f"{os.strerror(errno.EFBIG)}: {size} bytes, the limit is {limit}", path)
    data = bytearray()
    while len(data) < size:
        part = min(_CHUNK, size - len(data))
        outcome = yield from run(core, ["sh", "-c", _PART, "sh", path, str(len(data) + 1), str(part)])
        _check(outcome, path)
        if not outcome.stdout:
            break
        data += outcome.stdout[:part]
    return bytes(data)


def write(core: Core, path: str, data: bytes) -> Steps[None]:
    """Writes a file, with the directories above it."""
    outcome = yield from run(core, ["sh", "-c", _WRITE, "sh", path], stdin=data)
    _check(outcome, path)


def _check(outcome: Outcome, path: str) -> None:
    if outcome.exit_code == 0:
        return
    if outcome.denied:
        raise PermissionError(errno.EPERM, outcome.text.strip(), path)
    number = outcome.exit_code - 100
    if number in _NUMBERS:
        raise OSError(number, os.strerror(number), path)
    raise Error(f"`{path}` could not be accessed: {outcome.text.strip()}", code="file.failed")
