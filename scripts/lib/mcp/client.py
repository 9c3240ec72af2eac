"""Calls `brig mcp` with the Python SDK, in both generations of the protocol.

client.py BRIG MODE    where MODE is `auto` (tries server/discover first) or `legacy` (initialize)
"""

import asyncio
import sys

from mcp import Client, MCPError, StdioServerParameters

brig, mode = sys.argv[1:]


async def main():
    server = StdioServerParameters(command=brig, args=["mcp", "--quiet"])
    async with Client(server, mode=mode, read_timeout_seconds=60) as client:
        expected = {"auto": "2026-07-28", "legacy": "2025-11-25"}[mode]
        assert client.protocol_version == expected, client.protocol_version
        tools = (await client.list_tools()).tools
        names = [tool.name for tool in tools]
        assert names == ["end_session", "list_files", "read_file", "run_code", "run_command", "write_file"], names

        async def call(name, **arguments):
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result
            return result.structured_content

        assert (await call("run_code", code="print(6 * 7)"))["stdout"] == "42\n"
        await call("write_file", session="s", path="a.txt", content="text")
        assert (await call("run_command", session="s", command="cat a.txt"))["stdout"] == "text"
        assert (await call("read_file", session="s", path="a.txt"))["content"] == "text"
        assert (await call("list_files", session="s"))["entries"][0]["path"] == "a.txt"
        refused = await client.call_tool("run_code", {"code": "1", "network": "on"})
        assert refused.is_error and refused.structured_content["code"] == "mcp.arguments", refused
        try:
            await client.call_tool("no_such_tool", {})
            raise AssertionError("an unknown tool was called")
        except MCPError as error:
            assert error.error.code == -32602, error

        lines = []

        async def progress(_done, _total, message):
            lines.append(message)

        command = "for i in 1 2 3 4; do echo step $i; sleep 0.4; done"
        await client.call_tool("run_command", {"command": command}, progress_callback=progress)
        assert lines and lines[0].startswith("step "), lines

        uris = [resource.uri for resource in (await client.list_resources()).resources]
        assert [str(uri) for uri in uris] == ["brig://policy", "brig://doctor", "brig://session/s/a.txt"], uris
        content = (await client.read_resource("brig://session/s/a.txt")).contents[0]
        assert content.text == "text", content

        try:
            await client.call_tool("run_command", {"command": "sleep 50"}, read_timeout_seconds=0.5)
            raise AssertionError("the client's own timeout did not end the call")
        except MCPError:
            pass
        assert (await call("end_session", session="s")) == {"ended": True}
    print(f"Python SDK, {mode}: {expected}")


asyncio.run(main())
