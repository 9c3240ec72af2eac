"""A sandbox as the backend of Deep Agents.

    with brig.Sandbox(policy="policy.yaml") as box:
        agent = create_deep_agent(model, backend=BrigBackend(box))
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from . import _files
from ._commands import Outcome, shell
from ._extras import missing
from ._steps import Steps, adrive, core, drive

try:
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox
except ImportError as error:
    raise missing("deepagents", error) from error

if TYPE_CHECKING:
    from .._sandbox import Sandbox

__all__ = ["BrigBackend"]

_ERRORS = {
    errno.ENOENT: "file_not_found",
    errno.EISDIR: "is_directory",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
}


class BrigBackend(BaseSandbox):
    """The shell and the files of a `Sandbox`, for an agent. The sandbox stays yours: close it when you are done.

    A command that the policy denies has exit code 126 and one that takes too long 124, with the reason as output.
    """

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    @property
    def id(self) -> str:
        """The name of the session."""
        return self._box.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command. ``timeout`` can only shorten what the sandbox allows; 0 leaves it at that."""
        return _response(drive(self._shell(command, timeout)))

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:  # noqa: ASYNC109
        """The same. Cancelling the task ends the command."""
        return _response(await adrive(self._shell(command, timeout)))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, with the directories above them."""
        return [drive(self._upload(path, data)) for path, data in files]

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """The same."""
        return [await adrive(self._upload(path, data)) for path, data in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files."""
        return [drive(self._download(path)) for path in paths]

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """The same."""
        return [await adrive(self._download(path)) for path in paths]

    def _shell(self, command: str, timeout: int | None) -> Steps[Outcome]:
        # In one stream, as a terminal shows it.
        return shell(core(self._box), f"exec 2>&1\n{command}", timeout=timeout or None)

    def _upload(self, path: str, data: bytes) -> Steps[FileUploadResponse]:
        if not path.startswith("/"):
            return FileUploadResponse(path=path, error="invalid_path")
        try:
            yield from _files.write(core(self._box), path, data)
        except OSError as error:
            return FileUploadResponse(path=path, error=_code(error))
        return FileUploadResponse(path=path)

    def _download(self, path: str) -> Steps[FileDownloadResponse]:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            data = yield from _files.read(core(self._box), path)
        except OSError as error:
            return FileDownloadResponse(path=path, error=_code(error))
        return FileDownloadResponse(path=path, content=data)


def _response(outcome: Outcome) -> ExecuteResponse:
    return ExecuteResponse(output=outcome.text, exit_code=outcome.exit_code, truncated=outcome.truncated)


def _code(error: OSError) -> str:
    return _ERRORS.get(error.errno or 0, "invalid_path")
