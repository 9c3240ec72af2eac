# Every way into another namespace, also with bits set that the kernel ignores.
UNSHARE, CLONE, CLONE3, SETNS, PIDFD_OPEN = 272, 56, 435, 308, 434
SIGCHLD = 17
HIGH = 1 << 40
KINDS = {
    "user": 0x10000000,
    "mnt": 0x00020000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
    "time": 0x00000080,
}


def clone(flags):
    child = syscall(CLONE, flags | SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "cloned"


def clone3(flags, size=64):
    arguments = struct.pack("8Q", flags, 0, 0, 0, SIGCHLD, 0, 0, 0) + bytes(size - 64)
    child = syscall(CLONE3, arguments, size)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "cloned"


def setns(kind, flag):
    file = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
    syscall(SETNS, file, flag)


def setns_by_pidfd(flag):
    syscall(SETNS, syscall(PIDFD_OPEN, os.getpid(), 0), flag)


for kind, flag in KINDS.items():
    attempt(f"unshare {kind}", lambda: syscall(UNSHARE, flag))
    if kind != "time":
        # The low byte of clone's flags is the exit signal, so a time namespace needs clone3.
        attempt(f"clone {kind}", lambda: clone(flag))
        attempt(f"clone {kind} with high bits", lambda: clone(flag | HIGH))
    attempt(f"clone3 {kind}", lambda: clone3(flag))
    attempt(f"clone3 {kind} with a longer struct", lambda: clone3(flag, 88))
    if kind not in ("user", "time"):
        attempt(f"setns {kind}", lambda: setns(kind, flag))
        attempt(f"setns {kind} with high bits", lambda: setns(kind, flag | HIGH))
attempt("setns without a kind", lambda: setns("net", 0))
attempt("setns by pidfd", lambda: setns_by_pidfd(KINDS["net"]))
