# Runs in the sandbox. Where a tool comes from makes no difference here: `fetch_arxiv` is a command of the host,
# `add` belongs to an MCP server that is a command, `now` to one that has a URL.
import brig_tools

print(fetch_arxiv('cs.CL'))
print(add(a=2, b=3))
print(now(zone='UTC'))
for name, arguments in [('fetch_arxiv', {'args': ['internal']}), ('delete', {})]:
    try:
        brig_tools.call_tool(name, **arguments)
    except brig_tools.ToolError as error:
        print(error.code)
