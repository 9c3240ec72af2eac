# What ordinary programs do with sockets among themselves. Every attempt is to work.
import asyncio
import multiprocessing
import socket
import threading

OWN = ARGS["own"]
# All of it must work, however slow the machine is.
PATIENCE = 100


def echo(listener):
    def serve():
        while True:
            client, _ = listener.accept()
            client.sendall(b"own")
            client.close()

    threading.Thread(target=serve, daemon=True).start()


def local(address, to=None, kind=socket.SOCK_STREAM, timeout=None):
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(address)
    listener.listen(8)
    echo(listener)
    with socket.socket(socket.AF_UNIX, kind) as client:
        client.settimeout(timeout)
        client.connect(to or address)
        return client.recv(8) == b"own"


def relative():
    os.chdir(OWN)
    return local("relative", "../" + os.path.basename(OWN) + "/relative")


def by_descriptor():
    folder = os.open(OWN, os.O_PATH)
    return local(OWN + "/long", f"/proc/self/fd/{folder}/long")


def linked():
    os.symlink(OWN, OWN + "/link")
    return local(OWN + "/linked", OWN + "/link/linked")


def refused():
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(OWN + "/nobody") == errno.ENOENT


def crowd():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(OWN + "/crowd")
    listener.listen(2)
    echo(listener)
    answers = []

    def client():
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(OWN + "/crowd")
            answers.append(one.recv(8))

    threads = [threading.Thread(target=client) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers == [b"own"] * 24


def loop():
    async def main():
        async def greet(_, writer):
            writer.write(b"own")
            writer.close()

        server = await asyncio.start_unix_server(greet, OWN + "/loop")
        async with server:
            reader, writer = await asyncio.open_unix_connection(OWN + "/loop")
            answer = await reader.read(8)
            writer.close()
        return answer == b"own"

    return asyncio.run(main())


def manager():
    with multiprocessing.Manager() as shared:
        values = shared.dict()
        values["a"] = 1
        return dict(values) == {"a": 1}


def tcp(timeout):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(4)
    echo(listener)
    client = socket.socket()
    client.settimeout(timeout)
    client.connect(listener.getsockname())
    return client.recv(8) == b"own"


def udp():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.getsockname())
    client.send(b"own")
    return server.recv(8) == b"own"


def closed_port():
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", 1)) == errno.ECONNREFUSED


def pair():
    left, right = socket.socketpair()
    left.sendall(b"own")
    return right.recv(8) == b"own"


def locks():
    import fcntl
    with open(OWN + "/lock", "w") as one, open(OWN + "/lock", "w") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            pass
        threading.Timer(0.2, lambda: fcntl.flock(one, fcntl.LOCK_UN)).start()
        fcntl.flock(other, fcntl.LOCK_EX)
        return True


def interrupted():
    import fcntl

    def late(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    with open(OWN + "/held", "w") as one, open(OWN + "/held", "w") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            fcntl.flock(other, fcntl.LOCK_EX)
            return False
        except TimeoutError:
            return True


def refuses_locks():
    import fcntl

    with open(OWN + "/lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            return False
        except OSError as error:
            return error.errno == errno.ENOLCK


def watches(folder=OWN):
    notify = LIBC.inotify_init1(0)
    assert LIBC.inotify_add_watch(notify, os.fsencode(folder), 0x100) > 0
    name = f"seen-{time.monotonic_ns()}"
    open(folder + "/" + name, "w").close()
    os.unlink(folder + "/" + name)
    return name.encode() in os.read(notify, 4096)


def interfaces():
    return "lo" in [name for _, name in socket.if_nameindex()]


attempt("a pair", pair)
attempt("tcp", lambda: tcp(None))
attempt("tcp without waiting", lambda: tcp(60))
attempt("udp", udp)
attempt("a closed port", closed_port)
attempt("interfaces", interfaces)
if not ARGS.get("no_streams"):
    attempt("a stream", lambda: local(OWN + "/stream"))
    attempt("a stream without waiting", lambda: local(OWN + "/timed", timeout=60))
    attempt("packets", lambda: local(OWN + "/packets", kind=socket.SOCK_SEQPACKET))
    attempt("a name without a file", lambda: local("\0own"))
    attempt("a relative path", relative)
    attempt("a link", linked)
    attempt("a long path", by_descriptor)
    attempt("a socket that is not there", refused)
    if not ARGS.get("no_crowd"):
        attempt("a crowd", crowd)
    attempt("an event loop", loop)
    attempt("a manager of processes", manager)
if ARGS.get("no_locks"):
    attempt("locks are refused", refuses_locks)
else:
    attempt("locks", locks)
    attempt("a lock that is waited for no longer", interrupted)
attempt("watches", watches)
attempt("flush", lambda: os.sync() is None)
for folder in ARGS.get("watched", []):
    attempt("watches in " + folder, lambda: watches(folder))
