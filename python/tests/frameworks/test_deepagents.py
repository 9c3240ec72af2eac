"""LangChain's own suite for sandboxes of Deep Agents, and what is Brig's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests

import brig
from brig.integrations.deepagents import BrigBackend

ABSOLUTE = "deepagents 0.7.32 itself gives absolute paths and no directories; the suite expects them relative"
OVERWRITES = "deepagents 0.7.32 itself overwrites an existing file; the suite expects an error"

# Cases that deepagents' own `BaseSandbox` makes fail on every backend: docs/guides/frameworks.md.
DIFFERENT = {
    "test_glob": ABSOLUTE,
    "test_glob_basic_pattern": ABSOLUTE,
    "test_glob_with_directories": ABSOLUTE,
    "test_glob_hidden_files_explicitly": ABSOLUTE,
    "test_glob_with_character_class": ABSOLUTE,
    "test_glob_with_question_mark": ABSOLUTE,
    "test_write_existing_file_fails": OVERWRITES,
}


class TestSuite(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[BrigBackend]:
        # The suite calls `python`, which an environment has.
        with brig.Sandbox(backend="native", python=sys.prefix) as box:
            yield BrigBackend(box)

    @pytest.fixture(autouse=True)
    def different(self, request: pytest.FixtureRequest) -> None:
        why = DIFFERENT.get(request.node.name)
        if why is not None:
            request.applymarker(pytest.mark.xfail(reason=why, strict=True))


class OnTheHost(BaseSandbox):
    """A backend without a sandbox, to see which cases are not about one."""

    id = "host"

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        ran = subprocess.run(["sh", "-c", command], stdout=-1, stderr=subprocess.STDOUT, timeout=60, check=False)
        return ExecuteResponse(ran.stdout.decode(), ran.returncode)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        for path, data in files:
            Path(path).write_bytes(data)
        return [FileUploadResponse(path) for path, _ in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [FileDownloadResponse(path, Path(path).read_bytes()) for path in paths]


@pytest.mark.parametrize("case", DIFFERENT)
def test_a_differing_case_differs_without_brig_too(case: str, tmp_path: Path) -> None:
    suite: Any = TestSuite()
    with pytest.raises(AssertionError):
        getattr(suite, case)(OnTheHost(), str(tmp_path))


def test_denied_and_late_commands_are_answers() -> None:
    policy = {
        "rules": [
            {
                "name": "no-secrets",
                "condition": {"field": "code", "operator": "contains", "value": "secret"},
                "action": "deny",
                "message": "leave it",
            }
        ],
        "defaults": {"action": "allow"},
    }
    with brig.Sandbox(backend="native", policy=policy) as box:
        backend = BrigBackend(box)
        assert backend.execute("echo fine").output == "fine\n"
        denied = backend.execute("cat secret")
        assert denied.exit_code == 126 and "leave it" in denied.output
        late = backend.execute("echo began; sleep 600", timeout=1)
        assert late.exit_code == 124 and late.output.startswith("began\n")
        # Both streams in order, and what can't be parsed.
        assert backend.execute("echo a; echo b >&2; echo c").output == "a\nb\nc\n"
        assert "unexpected EOF" in backend.execute("echo 'open").output


def test_files_lead_only_where_code_may_go() -> None:
    with brig.Sandbox(backend="native") as box:
        backend = BrigBackend(box)
        backend.execute("ln -s /etc/hosts.not link; ln -s /dev/zero endless; mkfifo pipe")
        for name in ("endless", "pipe"):
            (answer,) = backend.download_files([f"/workspace/{name}"])
            assert answer.error == "invalid_path" and answer.content is None
            (answer,) = backend.upload_files([(f"/workspace/{name}", b"x")])
            assert answer.error == "invalid_path"
        (answer,) = backend.upload_files([("/usr/new", b"x")])
        assert answer.error == "permission_denied"
        (answer,) = backend.upload_files([("/workspace/new dir/-x", b"x" * 3_000_000)])
        assert answer.error is None
        (answer,) = backend.download_files(["/workspace/new dir/-x"])
        assert answer.content == b"x" * 3_000_000


def test_cancelling_ends_the_command() -> None:
    async def main() -> None:
        with brig.Sandbox(backend="native") as box:
            backend = BrigBackend(box)
            task = asyncio.ensure_future(backend.aexecute("touch began; sleep 600"))
            while b"began" not in box.run(["ls"]).stdout_bytes:
                await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await backend.aexecute("echo on")).output == "on\n"

    asyncio.run(main())
