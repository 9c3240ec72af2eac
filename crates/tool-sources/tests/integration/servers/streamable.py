"""An MCP server with streamable HTTP on a free port of loopback, which it prints. The first argument chooses how it answers."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODE = sys.argv[1]
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, kind="", body=b""):
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        if MODE != "no-session":
            self.send_header("Mcp-Session-Id", "s1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send(405)

    def do_DELETE(self):
        self.send(200)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != "Bearer right":
            return self.send(401)
        if "id" not in request:
            return self.send(202)
        method, params = request["method"], request.get("params", {})
        if method == "initialize":
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "test", "version": "1"}}
        elif method == "tools/list":
            result = {"tools": [TOOL]}
        elif MODE == "redirects":
            self.send_response(307)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        elif MODE == "hangs":
            time.sleep(600)
        elif MODE.startswith("floods"):
            return self.flood()
        else:
            result = {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}
        message = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        if MODE == "events":
            return self.send(200, "text/event-stream", b"event: message\ndata: " + message + b"\n\n")
        self.send(200, "application/json", message)

    def flood(self):
        self.send_response(200)
        events = MODE == "floods-events"
        self.send_header("Content-Type", "text/event-stream" if events else "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        line = b"data: " + b"x" * 65536 + b"\n" if events else b" " * 65536
        try:
            while True:
                self.wfile.write(line)
        except OSError:
            pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
