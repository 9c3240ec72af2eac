# Connects to what the host listens on. All addresses are this machine's own. What must answer is waited for longer.
import socket

WAIT = ARGS.get("wait", 3)
PATIENCE = max(PATIENCE, 2 * WAIT)


def stream(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(WAIT)
        client.connect(address)
        return client.recv(64).decode() == ARGS["greeting"]


def datagram(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(WAIT)
        client.connect(address)
        client.send(b"hello")
        return client.recv(64).decode() == ARGS["greeting"]


for name, path in ARGS.get("paths", {}).items():
    attempt(name, lambda: stream(socket.AF_UNIX, path))
if "abstract" in ARGS:
    attempt("abstract socket", lambda: stream(socket.AF_UNIX, "\0" + ARGS["abstract"]))
if "tcp" in ARGS:
    for host in ARGS["hosts"]:
        attempt(f"tcp {host}", lambda: stream(socket.AF_INET, (host, ARGS["tcp"])))
if "udp" in ARGS:
    for host in ARGS["hosts"]:
        attempt(f"udp {host}", lambda: datagram(socket.AF_INET, (host, ARGS["udp"])))
