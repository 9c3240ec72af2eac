"""The modules for agent frameworks without the frameworks. With them: `frameworks`."""

from __future__ import annotations

import ast
import errno
import importlib
import subprocess
import sys

import pytest

import brig
from brig.integrations import _commands, _files
from brig.integrations._argv import Refused, Source, classify
from brig.integrations._cells import prepared
from brig.integrations._steps import core, drive

FRAMEWORKS = {
    "deepagents": "deepagents",
    "langchain": "langchain",
    "llama_index": "llama_index",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "smolagents": "smolagents",
}


@pytest.mark.parametrize("module", FRAMEWORKS)
def test_a_missing_framework_names_its_extra(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if none of its modules were there.
    for name in [name for name in sys.modules if name.split(".")[0] == FRAMEWORKS[module]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, FRAMEWORKS[module], None)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    name = f"brig.integrations.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError) as error:
        importlib.import_module(name)
    assert f"pip install 'brig-sandbox[{module.replace('_', '-')}]'" in str(error.value)


def test_nothing_of_a_framework_is_imported_with_brig() -> None:
    names = [*FRAMEWORKS.values(), "cloudpickle", "brig.integrations"]
    code = f"import brig, sys; print([name for name in {names} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1 + 1", "1 + 1"),
        ("x = 1\nx;  # why", "x"),
        ("1, *y", "1, *y"),
        ("(x := 5)", "x := 5"),
        ("'é' + '''a\nb'''", "'é' + '''a\nb'''"),
        ("f(\n  1,\n)", "f(\n  1,\n)"),
        ("from __future__ import annotations\nx", "x"),
        ("'doc'", "'doc'"),
    ],
)
def test_the_last_expression_of_a_cell_is_noted(code: str, value: str) -> None:
    tree = ast.parse(prepared(code))
    last = tree.body[-1]
    assert isinstance(last, ast.Expr) and ast.unparse(last).startswith("brig_cells.value(")
    assert f"brig_cells.value(({value}))" in prepared(code)


@pytest.mark.parametrize("code", ["", "x = 1", "for n in x:\n    n", "def f():\n    return 1\n", "no program", "\0"])
def test_a_cell_without_a_last_expression_is_as_it_was(code: str) -> None:
    assert prepared(code) == "import brig_cells; brig_cells.begin(globals())\n" + code


@pytest.mark.parametrize(
    ("argv", "language", "code"),
    [
        (["sh", "-c", "curl"], "bash", "curl"),
        (["/bin/bash", "-lc", "curl"], "bash", "curl"),
        (["dash", "-l", "-c", "curl"], "bash", "curl"),
        (["sh", "-c", "--", "curl"], "bash", "curl"),
        (["busybox", "sh", "-c", "curl"], "bash", "curl"),
        (["bash", "-euo", "pipefail", "-c", "curl"], "bash", "set -euo pipefail\ncurl"),
        (["bash", "-c", "-x", "curl"], "bash", "set -x\ncurl"),
        (["sh", "-c", '"$@"', "sh", "curl", "a b"], "bash", "BASH_ARGV0=sh\nset -- curl 'a b'\n\"$@\""),
        (["python3", "-c", "curl"], "python", "curl"),
        (["/usr/bin/node", "-e", "curl"], "node", "curl"),
    ],
)
def test_code_in_an_argument_is_source_code(argv: list[str], language: str, code: str) -> None:
    assert classify(argv) == Source(language, code)


@pytest.mark.parametrize(
    "argv",
    [
        ["zsh", "-c", "curl"],
        ["ksh", "-lc", "curl"],
        ["bash", "-ic", "curl"],
        ["bash", "--rcfile", "f", "-c", "curl"],
        ["bash", "-O", "extglob", "-c", "curl"],
        ["sh", "-c"],
        ["python3", "-c", "exec(sys.argv[1])", "curl"],
        ["python3", "-Ic", "curl"],
        ["python3", "-W", "ignore", "-c", "curl"],
        ["python3", "-ccurl"],
        ["python3.11", "-c", "curl"],
        ["node", "-p", "curl"],
        ["node", "--eval=curl"],
        ["node", "--import", "data:text/javascript,curl"],
        ["perl", "-e", "curl"],
        ["ruby", "-W", "0", "-e", "curl"],
        ["gawk", "-c", "curl"],
        ["deno", "eval", "curl"],
        ["env", "A=b", "sh", "-c", "curl"],
        ["env", "-S", "sh -c curl"],
        ["timeout", "5", "env", "/bin/bash", "-c", "curl"],
        ["sudo", "-u", "me", "--", "sh", "-lc", "curl"],
    ],
)
def test_code_in_an_argument_that_can_not_be_source_code_is_refused(argv: list[str]) -> None:
    assert isinstance(classify(argv), Refused)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["ls", "-la"],
        ["wc", "-c", "file"],
        ["grep", "-c", "sh", "-e", "x"],
        ["bash", "script.sh", "-c", "x"],
        ["python3", "-u", "script.py", "-c", "x"],
        ["python3", "-m", "pytest", "-c", "x"],
        ["node", "-r", "module", "script.js", "-e"],
        ["env", "A=b", "python3", "script.py"],
        ["find", ".", "-name", "python3", "-o", "-name", "sh"],
        ["perl", "script.pl", "-e"],
    ],
)
def test_other_commands_stay_commands(argv: list[str]) -> None:
    assert classify(argv) is None


def test_the_policy_sees_code_in_arguments() -> None:
    rule = {
        "name": "no-curl",
        "condition": {"field": "code", "operator": "contains", "value": "curl"},
        "action": "deny",
    }
    with brig.Sandbox(backend="native", policy={"rules": [rule], "defaults": {"action": "allow"}}) as box:

        def ran(*argv: str) -> tuple[int, bytes]:
            outcome = drive(_commands.command(core(box), argv))
            return outcome.exit_code, outcome.stdout

        for argv in (["bash", "-c", "curl x"], ["/bin/sh", "-euc", "curl x"], ["sh", "-c", '"$@"', "sh", "curl"]):
            assert ran(*argv) == (126, b"")
        assert ran("sh", "-c", 'echo "$0:$#:$1:$2"', "name", "a b", "it's") == (0, b"name:2:a b:it's\n")
        assert ran("python3", "-c", "print(6 * 7)") == (0, b"42\n")
        assert ran("sh", "-euc", "false; echo never") == (1, b"")
        assert ran("echo", "as it was") == (0, b"as it was\n")
        assert ran("perl", "-e", "1") == (126, b"")


def test_a_file_is_read_up_to_a_limit() -> None:
    with brig.Sandbox(backend="native") as box:
        box.files.write("small", b"x" * 1_000_000)
        assert box.run(["truncate", "-s", "1T", "huge"]).ok or box.run(["truncate", "-s", "100M", "huge"]).ok
        assert drive(_files.read(core(box), "/workspace/small")) == b"x" * 1_000_000
        assert drive(_files.read(core(box), "/workspace/small", limit=1_000_000)) == b"x" * 1_000_000
        for name, limit in (("small", 999_999), ("huge", _files.LIMIT)):
            with pytest.raises(OSError) as error:
                drive(_files.read(core(box), f"/workspace/{name}", limit=limit))
            assert error.value.errno == errno.EFBIG and f"the limit is {limit}" in str(error.value)
