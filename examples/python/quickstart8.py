"""AGT's quickstart for Azure with its eight branches, on any backend of Brig.

    python quickstart8.py native
    python quickstart8.py docker --image python:3.13-slim
    python quickstart8.py aca --resource-group rg --sandbox-group agents --region eastus2

What may be reached is a server that this program starts, or, in Azure, www.python.org.
"""

from __future__ import annotations

import argparse
import http.server
import platform
import sys
import threading
from typing import Any
from urllib.parse import urlsplit

from brig.agent_sandbox import ACASandboxProvider, BrigSandboxProvider, SandboxConfig

AGENT = "quickstart"
TOOLS = ["fetch_arxiv"]
failed: list[str] = []


def fetch_arxiv(query: str) -> str:
    """Searches arXiv."""
    return f"<results for {query}>"


def policy(host: str) -> dict[str, Any]:
    """One host, no programs, one tool."""
    return {
        "name": "research-agent",
        "version": "2",
        "defaults": {"action": "allow", "timeout_seconds": 60, "network_default": "deny"},
        "network_allowlist": [host],
        "tool_allowlist": TOOLS,
        "rules": [
            {
                "name": "no-subprocess",
                "condition": {"field": "code", "operator": "contains", "value": "subprocess"},
                "action": "deny",
                "priority": 100,
                "message": "code may not start programs",
            },
            {
                "name": "known-tools-only",
                "condition": {"field": "tool_name", "operator": "not_in", "value": TOOLS},
                "action": "deny",
                "priority": 200,
                "message": "the tool is not one of this agent's",
            },
        ],
    }


def fetch(url: str) -> str:
    """Code that fetches a page and says what came of it."""
    return f"""
import urllib.error, urllib.request
try:
    print("status", urllib.request.urlopen({url!r}, timeout=20).status)
except urllib.error.HTTPError as error:
    print("egress-blocked" if error.code == 403 else "status", error.code)
except OSError as error:
    print("egress-blocked", error)
"""


class Branches:
    """Runs the branches in one session, and says how each went."""

    def __init__(self, provider: BrigSandboxProvider, session: str) -> None:
        self.provider = provider
        self.session = session

    def run(self, code: str, **context: str) -> str:
        """What the code printed, or why it was denied."""
        try:
            done = self.provider.execute_code(AGENT, self.session, code, context=context)
        except PermissionError as denied:
            return str(denied)
        assert done.result is not None
        return done.result.stdout or done.result.stderr

    def expect(self, name: str, wanted: str, said: str) -> None:
        """Compares."""
        if wanted not in said:
            failed.append(name)
        print(f"{'ok    ' if wanted in said else 'FAILED'}  {name}: {said.strip()}")


def local() -> str:
    """Starts a server that answers every request with 200, and gives back its address."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


def made(given: argparse.Namespace) -> BrigSandboxProvider:
    """The provider for a backend."""
    if given.backend == "aca":
        return ACASandboxProvider(given.resource_group, given.sandbox_group, region=given.region)
    options: Any = {} if given.image is None else {"image": given.image}
    return BrigSandboxProvider(given.backend, tools={"fetch_arxiv": fetch_arxiv}, options=options)


def main() -> None:
    """The branches, in AGT's order."""
    parser = argparse.ArgumentParser()
    parser.add_argument("backend", choices=("native", "docker", "aca"))
    for name in ("--image", "--resource-group", "--sandbox-group", "--region"):
        parser.add_argument(name)
    given = parser.parse_args()
    remote = given.backend == "aca"
    url = "https://www.python.org/" if remote else local()
    host = urlsplit(url).netloc
    with made(given) as provider:
        if not provider.is_available():
            raise SystemExit(f"not available: {provider.unavailable_reason}")
        config = SandboxConfig(timeout_seconds=60)
        session = provider.create_session(AGENT, policy=policy(host), config=config).session_id
        here = Branches(provider, session)
        here.expect("a host on the list", "status 200", here.run(fetch(url)))
        here.expect("denied by a rule", "code may not start programs", here.run("import subprocess"))
        other = "https://example.com/" if remote else "http://192.0.2.1/"
        here.expect("blocked at egress", "egress-blocked", here.run(fetch(other)))
        here.expect("sane after failures", "42", here.run("print(6 * 7)"))
        # In Azure code can't reach functions of this machine.
        call = "print('called')" if remote else "print(fetch_arxiv('cs.CL'))"
        wanted = "called" if remote else "<results for cs.CL>"
        here.expect("a tool that is allowed", wanted, here.run(call, tool_name="fetch_arxiv"))
        denied = here.run("print('called')", tool_name="evil_tool")
        here.expect("a tool that is denied", "the tool is not one of this agent's", denied)
        proof = here.run("import os, platform; print('ran on', platform.node(), 'as', os.getuid())")
        here.expect("it ran elsewhere", "as 65534", proof)
        if f"ran on {platform.node()} " in proof:
            failed.append("it ran here")
        records = [one for receipt in provider.receipts() for one in receipt["data"]["egress_decisions"]]
        said = ", ".join(f"{one['action']} {one['host']}:{one['port']}" for one in records)
        here.expect("decisions about hosts are on record", f"allow {urlsplit(url).hostname}", said)
        here.expect("also of what was blocked", "deny ", said)
    if failed:
        sys.exit(f"failed: {failed}")


main()
