"""An MCP server in one of many moods. The first argument chooses; it needs nothing but Python."""

import json
import os
import subprocess
import sys
import time

MODE = sys.argv[1]


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request, result):
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def text(what, **more):
    return {"content": [{"type": "text", "text": what}], **more}


def tool(name, **more):
    return {"name": name, "description": "A tool.", "inputSchema": {"type": "object"}, **more}


def tools():
    if MODE == "confusable":
        return [tool("fetch"), tool("f\u0435tch")]
    if MODE == "twice-listed":
        return [tool("a"), tool("a")]
    if MODE == "too-many":
        return [tool(f"t{i}") for i in range(1000)]
    if MODE == "no-object":
        return [tool("a", inputSchema={"type": "string"})]
    if MODE == "large-schema":
        return [tool("a", inputSchema={"type": "object", "description": "x" * 100_000})]
    if MODE == "lies":
        return [tool("a", outputSchema={"type": "object", "required": ["n"]})]
    return [tool("echo", description="First.\x1b[31m\nSecond."), tool("fail"), tool("pid"), tool("large"), tool("slow")]


def call(request):
    name, arguments = request["params"]["name"], request["params"].get("arguments", {})
    if MODE == "hangs-in-call":
        time.sleep(600)
    elif MODE == "dies-in-call":
        print("the last words", file=sys.stderr, flush=True)
        os._exit(1)
    elif MODE == "answers-twice":
        answer(request, text("first"))
        answer(request, text("second"))
        answer({"id": 999999}, text("of nobody"))
    elif MODE == "floods":
        while True:
            send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 65536}})
    elif MODE == "one-long-line":
        while True:
            sys.stdout.write("x" * 65536)
    elif MODE == "garbage":
        sys.stdout.write('\x00\xff{"jsonrpc": [\n[]\n{}\nnull\n')
        answer(request, text("after it"))
    elif MODE == "lies":
        answer(request, text("no", structuredContent={"other": 1}))
    elif MODE == "asks":
        send({"jsonrpc": "2.0", "id": "q1", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
        send({"jsonrpc": "2.0", "id": "q2", "method": "roots/list"})
        replies = [json.loads(sys.stdin.readline()) for _ in range(2)]
        answer(request, text(json.dumps(["error" if "error" in reply else reply.get("result") for reply in replies])))
    elif name == "fail" and arguments.get("tell") == "error":
        message = "refused: " + os.environ["TOKEN"]
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32000, "message": message}})
    elif name == "fail" and arguments.get("tell") == "result":
        answer(request, text("refused: " + os.environ["TOKEN"], isError=True))
    elif name == "fail":
        answer(request, text("bad\x1b[31m input\nand more", isError=True))
    elif name == "pid":
        left = subprocess.Popen(["setsid", "sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        answer(request, text("", structuredContent={"own": os.getpid(), "left": left.pid}))
    elif name == "large":
        answer(request, text("x" * (5 << 20)))
    else:
        answer(request, text(json.dumps(arguments)))


if MODE == "hangs":
    time.sleep(600)
if MODE == "dies":
    sys.exit("no such file: settings.json")
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message:
        continue
    if method == "initialize":
        answer(message, {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                         "serverInfo": {"name": "test", "version": "1"}})
    elif method == "tools/list" and MODE == "endless-list":
        answer(message, {"tools": [], "nextCursor": "more"})
    elif method == "tools/list":
        answer(message, {"tools": tools()})
    elif method == "tools/call":
        call(message)
    elif method:
        send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no such method"}})
