# Reaches sockets that the host has in a folder, in every way there is to name one. `folder` holds a
# stream that greets and a datagram socket; `own` is a folder where this probe may make sockets. What must work is tried
# for longer.
import array
import socket
import threading

FOLDER, OWN, GREETING = ARGS["folder"], ARGS["own"], ARGS["greeting"].encode()
WAIT = ARGS.get("wait", 3)
PATIENCE = max(PATIENCE, 2 * WAIT)
SOCKET, SOCKETPAIR, SENDTO, HIGH = 41, 53, 44, 1 << 32
UNIX, STREAM, DGRAM, RAW, SEQPACKET = 1, 1, 2, 3, 5


def address(path):
    return struct.pack("H", UNIX) + os.fsencode(path) + b"\0"


def greeted(client):
    client.settimeout(WAIT)
    return client.recv(64) == GREETING


def connect(path):
    with socket.socket(UNIX, STREAM) as client:
        client.connect(path)
        return greeted(client)


def of_a_pair(kind):
    both = (ctypes.c_int * 2)()
    syscall(SOCKETPAIR, UNIX, kind, 0, ctypes.byref(both))
    return both[0]


def send_from(descriptor):
    name = address(FOLDER + "/datagrams")
    return syscall(SENDTO, descriptor, b"hello", 5, 0, name, len(name)) == 5


def send_message(kind):
    left, _ = socket.socketpair(UNIX, kind)
    return left.sendmsg([b"hello"], [], 0, FOLDER + "/datagrams") == 5


def pass_descriptor():
    left, _ = socket.socketpair(UNIX, DGRAM)
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [os.open("/", os.O_RDONLY)]))
    return left.sendmsg([b"x"], [rights], 0, FOLDER + "/datagrams") == 1


def connect_datagrams(kind):
    client = socket.socket(fileno=syscall(SOCKET, UNIX, kind, 0))
    client.connect(FOLDER + "/datagrams")
    return client.send(b"hello") == 5


def linked():
    link = OWN + "/link"
    os.symlink(FOLDER, link)
    try:
        return connect(link + "/stream")
    finally:
        os.unlink(link)


def below():
    os.chdir(FOLDER)
    return connect("stream")


def by_descriptor():
    return connect(f"/proc/self/fd/{os.open(FOLDER, os.O_PATH)}/stream")


def by_socket_itself():
    return connect(f"/proc/self/fd/{os.open(FOLDER + '/stream', os.O_PATH)}")


def serve(path):
    listener = socket.socket(UNIX, STREAM)
    listener.bind(path)
    listener.listen(64)

    def answer():
        while True:
            client, _ = listener.accept()
            client.close()

    threading.Thread(target=answer, daemon=True).start()


def tries(once):
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        try:
            if once():
                return True
        except OSError:
            pass
    return False


def swapped_address():
    """Another thread rewrites the path while it is read."""
    good, bad = OWN + "/own", FOLDER + "/stream"
    serve(good)
    size = max(len(good), len(bad)) + 8
    both = [address(path).ljust(size, b"\0") for path in (good, bad)]
    shared = ctypes.create_string_buffer(both[0], size)

    def flip():
        while True:
            for one in both:
                ctypes.memmove(shared, one, size)

    threading.Thread(target=flip, daemon=True).start()

    def once():
        with socket.socket(UNIX, STREAM) as client:
            if LIBC.connect(client.fileno(), shared, size) == 0:
                return greeted(client)

    return tries(once)


def swapped_descriptor():
    """Another thread puts one socket in another's place while they are connected."""
    place = 200
    other = socket.socket(socket.AF_INET, STREAM)
    name = address(FOLDER + "/stream")

    def once():
        with socket.socket(UNIX, STREAM) as client:
            def flip():
                for _ in range(200):
                    os.dup2(other.fileno(), place)
                    os.dup2(client.fileno(), place)

            thread = threading.Thread(target=flip)
            thread.start()
            for _ in range(50):
                LIBC.connect(place, name, len(name))
            thread.join()
            client.settimeout(WAIT / 15)
            return client.recv(64) == GREETING

    return tries(once)


def make(kind):
    path = FOLDER + "/made-inside"
    try:
        if kind is None:
            os.mknod(path, 0o140666)
        else:
            socket.socket(UNIX, kind).bind(path)
        return True
    finally:
        if os.path.exists(path):
            os.unlink(path)


attempt("connect", lambda: connect(FOLDER + "/stream"))
attempt("connect by a link", linked)
attempt("connect by a relative path", below)
attempt("connect by the own root", lambda: connect("/proc/self/root" + FOLDER + "/stream"))
attempt("connect by a descriptor of the folder", by_descriptor)
attempt("connect by a descriptor of the socket", by_socket_itself)
for name, kind in {"datagrams": DGRAM, "raw datagrams": RAW, "datagrams with high bits": DGRAM | HIGH}.items():
    attempt(name + " by a pair", lambda: send_from(of_a_pair(kind)))
    attempt(name + " by a socket", lambda: send_from(syscall(SOCKET, UNIX, kind, 0)))
    attempt(name + " by a connection", lambda: connect_datagrams(kind))
attempt("family with high bits", lambda: send_from(syscall(SOCKET, UNIX | HIGH, DGRAM, 0)))
attempt("a message by a pair", lambda: send_message(DGRAM))
attempt("pass a descriptor", pass_descriptor)
attempt("an address that changes", swapped_address)
attempt("a descriptor that changes", swapped_descriptor)
if ARGS.get("writable"):
    attempt("make a socket in the folder", lambda: make(STREAM))
    attempt("make a node of a socket in the folder", lambda: make(None))
