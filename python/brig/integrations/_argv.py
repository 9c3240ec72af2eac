"""Commands of a model that have code in an argument: it is run as source code, so that rules about code see it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_SHELLS = frozenset({"sh", "bash", "dash", "ash"})
_PYTHON = frozenset({"python", "python3"})
_NODE = frozenset({"node", "nodejs"})

# They take code in an argument too, in a language that is not run as source code.
_OTHERS = re.compile(
    r"(r|m|pd|o|y|lo)?ksh(93)?|zsh|fish|t?csh|yash|posh|rbash|elvish|nu|xonsh|pwsh|python[0-9.]+|pypy[0-9.]*|perl[0-9.]*"
    r"|ruby[0-9.]*|lua(jit)?[0-9.]*|php[0-9.]*|tclsh[0-9.]*|deno|bun|[gmn]?awk|Rscript|julia|guile|su|runuser|script"
)

# They start the program that their arguments name.
_STARTERS = re.compile(
    r"env|nice|ionice|timeout|nohup|setsid|stdbuf|time|xargs|chroot|unshare|nsenter|find|sudo|doas|setpriv|flock|chrt"
    r"|taskset|prlimit|busybox|toybox|strace|ltrace|gdb|ld(-linux.*|-musl.*)?\.so.*|ld-musl.*|uv|uvx|poetry|npx|watch|parallel"
)

# Flags that have the next word as their value, and so don't end the flags with it.
_VALUES = frozenset({"-W", "-X", "--check-hash-based-pycs", "-r", "--require", "--import", "--loader", "-C", "--conditions"})
_HARMLESS = frozenset({"-l", "--login", "--norc", "--noprofile"})


@dataclass(frozen=True)
class Source:
    """Code, and its language."""

    language: str
    code: str


@dataclass(frozen=True)
class Refused:
    """Why a command is not run."""

    reason: str


def classify(argv: Sequence[str]) -> Source | Refused | None:
    """What a command is if one of its arguments is code; None if none is.

    >>> classify(["bash", "-euc", "ls"])
    Source(language='bash', code='set -eu\\nls')
    >>> classify(["/bin/sh", "-c", "cat $1", "sh", "a b"])
    Source(language='bash', code="BASH_ARGV0=sh\\nset -- 'a b'\\ncat $1")
    >>> classify(["perl", "-e", "1"]).reason.split(",")[0]
    '`perl` has code in an argument'
    >>> classify(["wc", "-c", "file"])
    """
    if not argv:
        return None
    name, words = _name(argv[0]), list(argv[1:])
    if name in ("busybox", "toybox") and words and _name(words[0]) in _SHELLS:
        return classify(words)
    if name in _SHELLS:
        return _shell(name, words)
    if name in _PYTHON and len(words) == 2 and words[0] == "-c":
        return Source("python", words[1])
    if name in _NODE and len(words) == 2 and words[0] in ("-e", "--eval"):
        return Source("node", words[1])
    if _interprets(name):
        return _refused(name) if _has_code(name, words) else None
    if _STARTERS.fullmatch(name):
        for at, word in enumerate(words):
            # All of a command may be in one word: `env -S`, `watch`.
            parts = word.removeprefix("-S").removeprefix("--split-string=").split()
            inner = [*parts, *words[at + 1 :]]
            if inner and _interprets(_name(inner[0])) and classify(inner) is not None:
                return _refused(name)
    return None


def _shell(name: str, words: list[str]) -> Source | Refused | None:
    """Shells have their flags before the code, in any number of words."""
    before: list[str] = []
    with_code = False
    while words and words[0][:1] in ("-", "+"):
        flag = words.pop(0)
        if flag in ("-", "--"):
            break
        if flag in _HARMLESS:
            continue
        letters = flag[1:]
        if flag[0] == "-":
            with_code = with_code or (flag[1] != "-" and "c" in letters)
            letters = letters.replace("c", "").replace("l", "")
        option = words.pop(0) if letters.endswith("o") and words else ""
        if re.fullmatch("[efuvxCB]*o?", letters) is None or (letters.endswith("o") and not option.isalpha()):
            # Not to be said in code. What is after it may be its value.
            unknown = with_code or any(re.match(r"-[A-Za-z]*c", word) for word in words)
            return _refused(name) if unknown else None
        if letters:
            before.append(f"set {flag[0]}{letters} {option}".rstrip())
    if not with_code:
        return None
    if not words:
        return _refused(name)
    code, *arguments = words
    if arguments:
        before.append(f"BASH_ARGV0={shlex.quote(arguments[0])}")
        # The code may run what is in them, so they are part of it.
        before.append(" ".join(["set --", *map(shlex.quote, arguments[1:])]))
    return Source("bash", "\n".join([*before, code]))


def _interprets(name: str) -> bool:
    return name in _SHELLS | _PYTHON | _NODE or _OTHERS.fullmatch(name) is not None


def _has_code(name: str, words: Sequence[str]) -> bool:
    """Whether a flag before the first file has code: as the next word, or in the same one."""
    python, node = name.startswith(("python", "pypy")), name in _NODE
    codes = "c" if python else "ep" if node else "ceErBFR"
    value = False
    for word in words:
        if node and "data:" in word:
            return True
        if not word.startswith("-") or word in ("-", "--"):
            if not value:
                return word == "eval" and name in ("deno", "bun")
            value = False
            continue
        if python and re.match("-[A-VYZa-ln-z]*m", word):
            return False
        long = word.startswith("--")
        if long and word.split("=")[0] in ("--eval", "--print", "--command", "--source", "--run", "--session-command"):
            return True
        # A letter may be in the value of one before it.
        flags = re.split("[WX]", word)[0] if python else word
        if not long and any(letter in flags for letter in codes):
            return True
        # Of others the flags with values are not known here.
        value = word in _VALUES if python or node else True
    return False


def _refused(name: str) -> Refused:
    return Refused(
        f"`{name}` has code in an argument, which rules about code must see; run it with `bash -c CODE`,"
        " `python3 -c CODE` or `node -e CODE` and nothing else, or from a file"
    )


def _name(program: str) -> str:
    return program.rsplit("/", 1)[-1]
