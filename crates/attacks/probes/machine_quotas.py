# Things that the kernel has one account of for the whole machine, or that reach files that the
# machine shares. `folder` is a writable folder with a file `file` in it.
import fcntl
import mmap
import resource
import socket

IO_SETUP, RENAMEAT2, PRCTL, SECCOMP, SYS_FLOCK, PERSONALITY, MEMFD_CREATE = (
    206, 316, 157, 317, 73, 135, 319,
)
FOLDER, SHARED, HIGH = ARGS["folder"], ARGS["shared"], 1 << 32
F_SETLEASE, F_NOTIFY, FS_IOC_SETFLAGS = 1024, 1026, 0x40086602
PASS = struct.pack("HBBI", 6, 0, 0, 0x7FFF0000)


def filtered(option, level=1):
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFF), 8)
    program = struct.pack("HxxxxxxQ", 1, ctypes.addressof(code))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        client.bind(("127.0.0.1", 0))
        SETSOCKOPT = 54
        syscall(SETSOCKOPT, client.fileno(), level, option, program, len(program))


def key():
    """Of a TCP connection to a router; each is memory of the machine's."""
    name = struct.pack("=HH4s", socket.AF_INET, 0, bytes([10, 0, 0, 1])).ljust(128, b"\0")
    with socket.socket() as client:
        TCP_MD5SIG = 14
        client.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, name + struct.pack("=BBHi80s", 0, 0, 3, 0, b"key"))


def flow_label():
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as client:
        IPV6_FLOWLABEL_MGR, GET, CREATE, ANYBODY = 32, 0, 1, 255
        request = socket.inet_pton(socket.AF_INET6, "::1") + struct.pack(
            "=IBBHHHI", 0, GET, ANYBODY, CREATE, 6, 6, 0
        )
        client.setsockopt(socket.IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, request)


def bridges():
    """Served as soon as the kernel has looked for its bridges, for which it loads a module."""
    with socket.socket() as client:
        SIOCGIFBR, VERSION = 0x8940, struct.pack("QQQ", 0, 0, 0)
        try:
            fcntl.ioctl(client, SIOCGIFBR, VERSION)
        except OSError as error:
            if error.errno != errno.ENOPKG:
                raise


def crash_helper():
    """With a limit of 1 no helper of the host is started for a crash; with 0 one is."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)


def flush_part():
    """The kernel refuses these flags, if it sees them."""
    SYNC_FILE_RANGE, NONE = 277, 0xFF
    with open(SHARED) as file:
        try:
            syscall(SYNC_FILE_RANGE, file.fileno(), 0, 0, NONE)
        except OSError as error:
            return error.errno == errno.EINVAL
        return False


def contexts():
    syscall(IO_SETUP, 64, ctypes.byref(ctypes.c_ulong(0)))


def lease():
    with open(FOLDER + "/file") as file:
        fcntl.fcntl(file, F_SETLEASE, fcntl.F_RDLCK)


def notify():
    folder = os.open(FOLDER, os.O_RDONLY)
    fcntl.fcntl(folder, F_NOTIFY, 4)


def hint():
    with open(FOLDER + "/file") as file:
        F_SET_RW_HINT, WRITE_LIFE_SHORT = 1036, 2
        fcntl.fcntl(file, F_SET_RW_HINT, struct.pack("Q", WRITE_LIFE_SHORT))


def whiteout(flags):
    with open(FOLDER + "/moved", "w"):
        pass
    try:
        syscall(RENAMEAT2, -100, os.fsencode(FOLDER + "/moved"), -100, os.fsencode(FOLDER + "/away"), flags)
    finally:
        for name in ("moved", "away"):
            if os.path.lexists(FOLDER + "/" + name):
                os.unlink(FOLDER + "/" + name)


def lock(how):
    with open(SHARED) as file:
        syscall(SYS_FLOCK, file.fileno(), how)


def watch(path):
    notify = LIBC.inotify_init1(0)
    if LIBC.inotify_add_watch(notify, os.fsencode(path), 0x20) < 0:
        raise OSError(ctypes.get_errno(), path)


def flags():
    with open(FOLDER + "/file") as file:
        FS_IOC_GETFLAGS, NODUMP = 0x80086601, 0x40
        now, = struct.unpack("l", fcntl.ioctl(file, FS_IOC_GETFLAGS, struct.pack("l", 0)))
        fcntl.ioctl(file, FS_IOC_SETFLAGS, struct.pack("l", now | NODUMP))


def filters(most=1500):
    """Each is small: what counts is how many are compiled."""
    code = ctypes.create_string_buffer(PASS, 8)
    program = struct.pack("HxxxxxxQ", 1, ctypes.addressof(code))
    syscall(PRCTL, 38, 1, 0, 0, 0)
    for number in range(most):
        if number % 2:
            syscall(SECCOMP, 1, 0, program)
        else:
            syscall(PRCTL, 22, 2, program)


def netlink(most=100):
    kept = [socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) for _ in range(most)]
    return len(kept)


def huge():
    try:
        mmap.mmap(-1, 2 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)
    except OSError as error:
        # The machine has set none aside, but would have given them.
        if error.errno != errno.ENOMEM:
            raise


def less_likely_to_go():
    with open("/proc/self/oom_score_adj") as file:
        score = int(file.read())
    if score < 1000 and ARGS.get("outside"):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(score + 1))
            score += 1
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(score - 1))


attempt("asynchronous contexts", contexts)
for name, option in {"filter": 26, "reuseport filter": 51}.items():
    attempt("socket " + name, lambda: filtered(option))
    attempt("socket " + name + " with high bits", lambda: filtered(option | HIGH, 1 | HIGH))
attempt("a key of a TCP connection", key)
attempt("filters of one's own without end", filters)
attempt("netlink sockets without end", netlink)
attempt("a flow label", flow_label)
attempt("a list of bridges", bridges)
attempt("a program of the host for every crash", crash_helper)
attempt("a part of a file to the disk", flush_part)
attempt("a lease", lease)
attempt("notes about a folder", notify)
attempt("a hint for the writes to a file", hint)
attempt("a whiteout", lambda: whiteout(4))
attempt("a whiteout with high bits", lambda: whiteout(4 | HIGH))
attempt("flags of a file", flags)
attempt("an exclusive lock on a file of the machine", lambda: lock(2 | 4))
attempt("a shared lock on a file of the machine", lambda: lock(1 | 4))
attempt("a watch on programs of the machine", lambda: watch("/usr/bin"))
attempt("a watch by another path", lambda: watch("/proc/self/root/usr/lib"))
attempt("large pages", huge)
attempt("large pages in a memory file", served(lambda: syscall(MEMFD_CREATE, b"brig", 4 | 8)))
attempt("no randomisation", lambda: syscall(PERSONALITY, 0x40000))
attempt("no randomisation with high bits", lambda: syscall(PERSONALITY, 0x40000 | HIGH))
attempt("processors for oneself", served(lambda: syscall(PRCTL, 62, 1, 0, 0, 0)))
attempt("a lower chance to be chosen when memory runs out", less_likely_to_go)
