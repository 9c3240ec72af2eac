# Sends an open descriptor to a helper on the host, through an abstract socket.
import array
import socket

WAIT = ARGS.get("wait", 3)
PATIENCE = max(PATIENCE, 2 * WAIT)


def send():
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(WAIT)
        client.connect("\0" + ARGS["abstract"])
        file = os.open("/", os.O_RDONLY)
        client.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))])
        return "sent"


attempt("pass a descriptor", send)
