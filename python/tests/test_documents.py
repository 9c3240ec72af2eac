"""The Python of the documents, run block by block in a directory of its own.

A block that begins with a comment such as ``# policy.yaml`` is a file of that name. ``<!-- not run: REASON -->``
exempts a block.
"""

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from conftest import skipped
from test_agt import module_of_agt

HERE = Path(__file__).resolve()
ROOT = next(place for place in HERE.parents if (place / "docs/guides/python.md").exists())
BLOCK = re.compile(r"(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
FILE = re.compile(r"# ((?!.*\.\.)[\w./-]+\.\w+)\n")


def follow(document: str) -> int:
    """Runs all blocks, and says how many there were."""
    names: dict[str, object] = {"__name__": "__main__"}
    ran = 0
    for block in BLOCK.finditer((ROOT / document).read_text()):
        text, note = block["text"], block["note"] or ""
        if found := FILE.match(text):
            file = Path(found[1])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        elif block["language"] == "python" and not note.startswith("not run: "):
            code = compile(text, document, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            answer = eval(code, names)
            if inspect.iscoroutine(answer):
                asyncio.run(answer)
            ran += 1
    return ran


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_readme() -> None:
    assert follow("README.md") == 1


def test_the_guide(capsys: pytest.CaptureFixture[str]) -> None:
    assert follow("docs/guides/python.md") == 5
    assert capsys.readouterr().out.startswith("42\n\none\ntwo\n")


def test_from_agt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    socket, image = os.environ.get("BRIG_TEST_DOCKER"), os.environ.get("BRIG_TEST_IMAGE")
    host = f"unix://{socket}"
    tag = ["docker", "-H", host, "tag", str(image), "python:3.13-slim"]
    if not socket or not image or subprocess.run(tag).returncode != 0:
        why = "the Python of docs/guides/from-agt.md: no container engine was started for the tests"
        skipped(why)
        pytest.skip(why)
    monkeypatch.setenv("DOCKER_HOST", host)
    # The package itself would import all of AGT.
    audit = module_of_agt("agentmesh", "governance/audit.py")
    for name in "agentmesh", "agentmesh.governance":
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "agentmesh.governance.audit", audit)
    assert follow("docs/guides/from-agt.md") == 2
    assert capsys.readouterr().out == "hello\n\n"


def test_a_block_that_fails_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "d.md").write_text("```python\nimport asyncio\n```\ntext\n```python\nawait asyncio.sleep(0)\nassert 0\n```\n")
    with pytest.raises(AssertionError):
        follow("d.md")
