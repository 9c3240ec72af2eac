"""Options of a sandbox, as the native module takes them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ._policy import Policy, PolicyLike, policies_of

if TYPE_CHECKING:
    from ._tools import Tool

PathLike = str | os.PathLike[str]

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


@dataclass(frozen=True)
class Mount:
    """A file or directory of the host that the sandbox shows at ``target``, read-only unless ``writable``."""

    source: PathLike
    target: str
    writable: bool = False


class Options(TypedDict, total=False):
    """The options of a sandbox. All of them can be left out.

    A limit that is given is enforced or refused. A policy can only make it stricter.
    """

    policy: PolicyLike | Sequence[PolicyLike] | None
    """What decides: a `Policy`, a path, a mapping, or AGT's ``PolicyDocument``; or several, which hold together."""
    tools: Iterable[Tool | Callable[..., Any]] | Mapping[str, Callable[..., Any]]
    """Functions of this program that the code may call, as far as the policy lists them."""
    approve: Callable[..., Any] | None
    """Called with an `ApprovalRequest` where the policy requires an approval. Without it, that is a denial."""
    agent: str
    """Who the executions are recorded for."""
    backend: Literal["auto", "native", "docker", "aca"]
    """``auto`` is ``native`` where it can be used, otherwise ``docker``. ``aca`` is Azure Container Apps."""
    timeout: float
    """Seconds for each execution (60)."""
    memory: int | str
    """Bytes, or text such as ``512MiB``, for all processes together."""
    cpus: float
    """Processors, which may be a fraction."""
    processes: int
    """Processes and threads at a time."""
    disk: int | str
    """For all that is written in the sandbox together."""
    output: int | str
    """Kept of each of stdout and stderr (1 MiB). The rest is dropped, unless ``kill_on_output``."""
    kill_on_output: bool
    """An execution that writes more than ``output`` is ended."""
    env: Mapping[str, str]
    """Environment variables of every execution."""
    mounts: Iterable[Mount]
    """Files and directories of the host that the sandbox shows."""
    workspace: PathLike
    """A directory of the host to use as the workspace, writable."""
    network: Iterable[str]
    """Hosts that may be reached, such as ``api.example.com`` or ``*.example.com:443``. None by default."""
    block: Iterable[str]
    """Hosts that may not be reached, whatever else allows them."""
    python: PathLike
    """The Python of the sandbox: an interpreter or a virtual environment of the host."""
    rootfs: PathLike
    """A root file system in place of the host's system directories."""
    writable_root: bool
    """Whether the system directories can be written. What is written there is not kept."""
    image: str
    """The container image (docker), or the disk image (aca)."""
    runtime: str
    """The container runtime (docker), such as ``runc`` or ``gvisor``."""
    docker_host: str
    """The engine (docker), as in ``DOCKER_HOST``."""
    azure: Mapping[str, Any]
    """Settings of ``aca`` by the names of its guide, such as ``resource_group``; the rest is taken from the environment.
    ``credential`` may also be a credential of ``azure.identity``."""
    waive: Iterable[str]
    """Controls that you accept to be missing, such as ``cpu``. This is recorded."""
    show_secrets: Iterable[PathLike]
    """Paths that are shown although their names are those of secrets."""
    observe_commands: bool
    """Record every start of a program, even without a policy about commands."""
    state_dir: PathLike
    """Where sessions are kept. Without it they live as long as the process."""
    audit: PathLike
    """The directory of the audit log. Without it, only the newest receipts are kept, in memory."""


_KNOWN = frozenset(Options.__annotations__)


def size(given: int | str, name: str) -> int:
    """Bytes, of a number or of text such as ``512MiB``."""
    if isinstance(given, int):
        return given
    found = _SIZE.fullmatch(given.strip())
    if found is None:
        raise ValueError(f"{name}: {given!r} is not a size; write bytes, or a number with k, m, g or t")
    return int(float(found[1]) * _UNITS[found[2].lower()])


@dataclass(frozen=True)
class Parts:
    """What the native module takes."""

    setup: str
    config: str
    policies: list[Policy]
    temporary: bool
    credential: Callable[[str, object], tuple[str, int]] | None


def parts(options: Options, tools: Iterable[str]) -> Parts:
    """Checks the options and translates them. ``tools``: the names of those that are given."""
    unknown = sorted(set(options) - _KNOWN)
    if unknown:
        raise TypeError(f"unknown option of a sandbox: {', '.join(unknown)}")
    config: dict[str, Any] = {}
    for limit in ("memory", "disk", "output"):
        if limit in options:
            config[limit] = size(options[limit], limit)
    for plain in ("timeout", "cpus", "processes", "kill_on_output", "writable_root", "observe_commands"):
        if plain in options:
            config[plain] = options[plain]
    for path in ("workspace", "python", "rootfs"):
        if path in options:
            config[path] = os.path.abspath(options[path])
    for names in ("network", "block", "waive"):
        if names in options:
            config[names] = _texts(options[names], names)
    if "env" in options:
        config["env"] = dict(options["env"])
    if "show_secrets" in options:
        config["show_secrets"] = [os.path.abspath(path) for path in options["show_secrets"]]
    config["mounts"] = [
        {"source": os.path.abspath(one.source), "target": one.target, "writable": one.writable}
        for one in options.get("mounts", ())
    ]
    config["options"] = {key: options[key] for key in ("image", "runtime") if key in options}
    state_dir, audit = options.get("state_dir"), options.get("audit")
    host = options.get("docker_host")
    azure, credential = _azure(options.get("azure", {}))
    setup = {
        "agent": options.get("agent", "python"),
        "backend": options.get("backend", "auto"),
        "settings": {"docker": {} if host is None else {"host": host}, "aca": azure},
        "state_dir": None if state_dir is None else os.path.abspath(state_dir),
        "audit": None if audit is None else os.path.abspath(audit),
    }
    policies = policies_of(options.get("policy"))
    given = list(tools)
    if given and not policies:
        # Without a policy nothing is listed; who gives functions and no policy means these.
        listed = {
            "name": "tools",
            "defaults": {"action": "allow", "max_tool_calls": 1_000_000},
            "tool_allowlist": given,
        }
        policies = [Policy(listed)]
    return Parts(json.dumps(setup), json.dumps(config), policies, state_dir is None, credential)


def _azure(
    given: Mapping[str, Any],
) -> tuple[dict[str, str], Callable[[str, object], tuple[str, int]] | None]:
    """Settings as text, and a function that gives tokens if there is a credential."""
    given = {name.replace("_", "-"): value for name, value in given.items()}
    get_token: Callable[[str], Any] | None = getattr(given.get("credential"), "get_token", None)
    if get_token is None:
        return {name: str(value) for name, value in given.items()}, None

    def token(scope: str, _: object) -> tuple[str, int]:
        found = get_token(scope)
        return str(found.token), int(found.expires_on)

    return {name: str(value) for name, value in given.items() if name != "credential"}, token


def _texts(given: Iterable[str], name: str) -> list[str]:
    if isinstance(given, str):
        raise TypeError(f"{name}: a list of texts is needed, not one text")
    return list(given)
