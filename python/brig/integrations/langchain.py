"""LangChain's shell tool in a sandbox.

    create_agent(model, middleware=[ShellToolMiddleware(execution_policy=BrigExecutionPolicy())])

The tool writes to a shell that stays open, which needs the command ``brig``. The shell is one execution: no command of
the model is decided or recorded alone, and a policy with rules is refused. An agent of Deep Agents has a shell and files with
decisions on each command: `brig.integrations.deepagents`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .._policy import Policy
from ._extras import missing

try:
    from langchain.agents.middleware._execution import BaseExecutionPolicy
except ImportError as error:
    raise missing("langchain", error) from error

__all__ = ["BrigExecutionPolicy"]


@dataclass
class BrigExecutionPolicy(BaseExecutionPolicy):
    """Runs the shell with ``brig run``, and the directory of the tool as the workspace, writable.

    Variables of this process's environment that the tool would pass on as they are stay outside. The shell ends after
    ``session_timeout`` seconds, with all that it has started.
    """

    policy: str | os.PathLike[str] | None = None
    """The file of a policy without rules: its limits and hosts hold for the shell."""
    session_timeout: float = 3600.0
    """Seconds until the shell is ended."""
    arguments: Sequence[str] = ()
    """More flags of ``brig run``, such as ``--memory``, ``1G``."""
    program: str | os.PathLike[str] = "brig"
    """The command."""

    def spawn(self, *, workspace: Path, env: Mapping[str, str], command: Sequence[str]) -> subprocess.Popen[str]:
        """Starts it."""
        program = shutil.which(self.program)
        if program is None:
            raise RuntimeError(
                f"`{os.fspath(self.program)}` is not installed; the shell tool needs the command line of Brig"
                " (or use brig.integrations.deepagents, which does not)"
            )
        given = {name: value for name, value in env.items() if os.environ.get(name) != value}
        line = [program, "run", "--quiet", "--interactive", "--timeout", f"{self.session_timeout:g}s"]
        line += ["--workspace", os.fspath(workspace)]
        if any(one.startswith("--policy") for one in self.arguments):
            raise ValueError("`--policy` in the arguments: give it as `policy`")
        if self.policy is not None:
            _check(self.policy)
            line += ["--policy", os.fspath(self.policy)]
        # Other users can read the command line, and variables of `brig` itself would change what it does.
        with _variables(given) as descriptor:
            if descriptor is not None:
                line += ["--env-file", f"/proc/self/fd/{descriptor}"]
            return subprocess.Popen(
                [*line, *self.arguments, "--", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                bufsize=1,
                start_new_session=True,
                pass_fds=() if descriptor is None else (descriptor,),
            )


@contextmanager
def _variables(given: Mapping[str, str]) -> Iterator[int | None]:
    """A descriptor of a file in memory, in the format of ``--env-file``."""
    for name, value in given.items():
        if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) is None:
            raise ValueError(f"`{name}` is not the name of a variable")
        if "\n" in value or value.endswith("\r") or "\0" in value:
            raise ValueError(f"the variable `{name}` has a line break, which can't be passed on")
    if not given:
        yield None
        return
    with open(os.memfd_create("brig-env", os.MFD_CLOEXEC), "wb") as file:
        file.write("".join(f"{name}={value}\n" for name, value in given.items()).encode("utf-8", "surrogateescape"))
        file.seek(0)
        yield file.fileno()


def _check(path: str | os.PathLike[str]) -> None:
    """Rules are about one execution, and the shell is one for all commands: they would decide on none of these."""
    # Each rule is in the explanation, whichever fact it compares. Lists of tools and limits are no rules.
    if Policy(path).explain(command=["sh"]).considered:
        raise ValueError(
            f"`{os.fspath(path)}` has rules, which see no command of a shell that stays open"
            " (hint: use brig.integrations.deepagents, where each command is decided and recorded)"
        )
