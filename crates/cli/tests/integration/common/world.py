# Runs a program in a world of its own, as the same user: world.py PARTS PROGRAM ARGS...
# PARTS is a comma-separated list:
#   PATH    a directory is covered by an empty tmpfs, a file by /dev/null
#   mirror  no network but the loopback interface, where http://mirror.corp:8080 answers as 10.0.0.5
import ctypes, fcntl, http.server, os, socket, struct, sys, tempfile

libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.getuid(), os.getgid()


def check(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), "cannot make the world")


def enter(kinds):
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready[0], 1)
        parent = os.getppid()
        if uid:
            open(f"/proc/{parent}/setgroups", "w").write("deny")
        for kind, number in (("uid", uid), ("gid", gid)):
            line = f"{number} {number} 1" if uid else "0 0 4294967295"
            open(f"/proc/{parent}/{kind}_map", "w").write(line)
        os.write(go[1], b"x")
        os._exit(0)
    check(libc.unshare(0x10000000 | kinds))
    os.write(ready[1], b"x")
    os.read(go[0], 1)
    os.waitpid(child, 0)
    check(libc.mount(b"none", b"/", None, 0x44000, None))


class Index(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = b"<a href=six-1.17.0-py2.py3-none-any.whl>six</a>\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *line):
        pass


def mirror():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for name, address in (b"lo", "127.0.0.1"), (b"lo:1", "10.0.0.5"):
            where = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(control, 0x8916, where)
            fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", name, 1))
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        hosts.write("127.0.0.1 localhost\n10.0.0.5 mirror.corp\n")
        hosts.flush()
        os.chmod(hosts.name, 0o644)
        check(libc.mount(hosts.name.encode(), b"/etc/hosts", None, 0x1000, None))
    server = http.server.ThreadingHTTPServer(("10.0.0.5", 8080), Index)
    if os.fork() == 0:
        # Ends with the program.
        check(libc.prctl(1, 9))
        null = os.open("/dev/null", os.O_RDWR)
        for standard in 0, 1, 2:
            os.dup2(null, standard)
        server.serve_forever()


parts = sys.argv[1].split(",")
with_mirror = "mirror" in parts
enter(0x00020000 | (0x40000000 if with_mirror else 0))
for path in parts:
    if path == "mirror":
        mirror()
    elif os.path.isdir(path):
        check(libc.mount(b"none", path.encode(), b"tmpfs", 0, None))
    else:
        check(libc.mount(b"/dev/null", path.encode(), None, 0x1000, None))
os.execv(sys.argv[2], sys.argv[2:])
