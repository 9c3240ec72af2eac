"""A program of AGT, with one import changed: sessions, a policy, tools, checkpoints, and receipts."""

import asyncio

from brig.agent_sandbox import BrigSandboxProvider, SandboxConfig

POLICY = {
    "name": "research-agent",
    "version": "2",
    "defaults": {"action": "allow", "timeout_seconds": 90, "network_default": "deny"},
    "tool_allowlist": ["fetch_arxiv"],
    "rules": [
        {
            "name": "deny-shell-out",
            "condition": {"field": "code", "operator": "contains", "value": "subprocess"},
            "action": "deny",
            "priority": 100,
            "message": "shell-out blocked by research-agent policy",
        },
        {
            "name": "only-listed-tools",
            "condition": {"field": "tool_name", "operator": "not_in", "value": ["fetch_arxiv"]},
            "action": "deny",
            "priority": 200,
            "message": "the tool is not listed",
        },
    ],
}


def fetch_arxiv(query: str) -> str:
    """Searches arXiv."""
    return f"<results for {query}>"


async def main() -> None:
    """The branches of AGT's quickstart that need no cloud."""
    provider = BrigSandboxProvider(tools={"fetch_arxiv": fetch_arxiv})
    if not provider.is_available():
        raise SystemExit(f"not available: {provider.unavailable_reason}")
    config = SandboxConfig(timeout_seconds=30)
    session = await provider.create_session_async("research-agent", policy=POLICY, config=config)
    name = session.session_id

    async def run(code: str, **context: str) -> str:
        done = await provider.execute_code_async("research-agent", name, code, context=context)
        assert done.result is not None
        return done.result.stdout if done.result.success else f"failed: {done.result.stderr}"

    try:
        print("allowed:", await run("import json; print(json.dumps([1, 2]))"), end="")
        try:
            await run("import subprocess")
        except PermissionError as denied:
            print("denied by the policy:", denied)
        blocked = await run("import urllib.request as u; u.urlopen('http://192.0.2.1', timeout=5)")
        print("blocked at egress:", blocked.startswith("failed"))
        print("sanity:", await run("print('still here')"), end="")
        print("tool allowed:", await run("print(fetch_arxiv('cs.CL'))", tool_name="fetch_arxiv"), end="")
        try:
            await run("print(1)", tool_name="evil_tool")
        except PermissionError as denied:
            print("tool denied:", denied)
        print("proof:", await run("import os; print('uid', os.getuid(), 'in', os.getcwd())"), end="")
        await run("open('kept', 'w').write('x')")
        print("checkpoint:", provider.save_state("research-agent", name, "after-step-1").image_tag)
    finally:
        await provider.destroy_session_async("research-agent", name)
    outcomes = [receipt["outcome"] for receipt in provider.receipts()]
    print("receipts:", outcomes)
    assert outcomes.count("denied-by-policy") == 2
    assert outcomes.count("blocked-at-egress") == 1


asyncio.run(main())
