"""A small MCP server in plain Python, for the example: `add`, `now` and `delete`.

    server.py          on standard input and output
    server.py --http   on a port of 127.0.0.1, which it prints; answers are JSON
"""

import http.server
import json
import sys

NUMBERS = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}
ZONE = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
TOOLS = {
    "add": (NUMBERS, "Adds two numbers.", lambda a, b: a + b),
    "now": (ZONE, "Says what time it is.", lambda zone: f"noon, {zone}"),
    "delete": ({"type": "object"}, "Deletes everything.", lambda **_: "deleted"),
}


def answer(request):
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "example", "version": "1"},
        }
    if method == "tools/list":
        listed = ((name, schema, text) for name, (schema, text, _) in TOOLS.items())
        return {"tools": [{"name": name, "inputSchema": schema, "description": text} for name, schema, text in listed]}
    if method == "tools/call":
        result = TOOLS[params["name"]][2](**params.get("arguments", {}))
        return {"content": [{"type": "text", "text": str(result)}]}
    return None


def reply(text):
    """The message that answers another one. Nothing answers a notification."""
    request = json.loads(text)
    if "id" not in request:
        return None
    result = answer(request)
    if result is None:
        error = {"code": -32601, "message": "no such method"}
        return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error})
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = (reply(self.rfile.read(int(self.headers["Content-Length"]))) or "").encode()
        self.send_response(200 if body else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if sys.argv[1:] == ["--http"]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
for line in sys.stdin:
    if message := reply(line):
        print(message, flush=True)
