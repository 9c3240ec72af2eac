# Leaves a program with the set-id bits in a host directory, in every way there is.
OPEN, CREAT, CHMOD, FCHMOD, MKNOD, OPENAT, MKNODAT, FCHMODAT, FCHMODAT2, OPENAT2 = (
    2, 85, 90, 91, 133, 257, 259, 268, 452, 437,
)
LINKAT, AT_SYMLINK_FOLLOW = 265, 0x400
AT_FDCWD, O_TMPFILE, S_IFREG, HIGH = -100, 0o20200000, 0o100000, 1 << 32
os.umask(0)
FOLDER = ARGS["folder"]
number = 0


def fresh(make=True):
    global number
    number += 1
    path = os.path.join(FOLDER, f"file{number}").encode()
    if make:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o755))
    return path


def has_bits(path):
    return bool(os.stat(path).st_mode & 0o6000) and path.decode()


def after(path, call):
    call(path)
    return has_bits(path)


def how(flags, mode):
    return struct.pack("QQQ", flags, mode, 0)


def unnamed(mode):
    file = os.open(FOLDER, O_TMPFILE | os.O_RDWR, mode)
    path = fresh(False)
    link = f"/proc/self/fd/{file}".encode()
    syscall(LINKAT, AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW)
    return has_bits(path)


CREATE = os.O_CREAT | os.O_WRONLY
for name, bits in (("setuid", 0o4755), ("setgid", 0o2755)):
    ways = {
        "chmod": (True, lambda p: syscall(CHMOD, p, bits)),
        "chmod with high bits": (True, lambda p: syscall(CHMOD, p, bits | HIGH)),
        "fchmod": (True, lambda p: syscall(FCHMOD, os.open(p, os.O_RDONLY), bits)),
        "fchmodat": (True, lambda p: syscall(FCHMODAT, AT_FDCWD, p, bits)),
        "fchmodat2": (True, lambda p: syscall(FCHMODAT2, AT_FDCWD, p, bits, 0)),
        "open": (False, lambda p: syscall(OPEN, p, CREATE, bits)),
        "creat": (False, lambda p: syscall(CREAT, p, bits)),
        "openat": (False, lambda p: syscall(OPENAT, AT_FDCWD, p, CREATE, bits)),
        "openat2": (False, lambda p: syscall(OPENAT2, AT_FDCWD, p, how(CREATE, bits), 24)),
        "mknod": (False, lambda p: syscall(MKNOD, p, S_IFREG | bits, 0)),
        "mknodat": (False, lambda p: syscall(MKNODAT, AT_FDCWD, p, S_IFREG | bits, 0)),
    }
    for way, (make, call) in ways.items():
        path = fresh(make)
        attempt(f"{name} by {way}", lambda: after(path, call))
    attempt(f"{name} by an unnamed file", lambda: unnamed(bits))
