# Every way to write to a file through a mapping without changing its times, and ways to change them back.
import fcntl
import mmap
import socket
import threading

TEXT = ARGS["text"].encode()
ROUND = ARGS["round"]
SIZE = 100000
NOATIME = 0o1000000
SHARED, VALIDATE, READ, WRITE = 1, 3, 1, 2
F_SETFL = 4
PUNCH_KEEP_SIZE = 3
MADV_REMOVE = 9
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.mremap.restype = ctypes.c_void_p
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


def raw(fd, access=READ | WRITE, flags=SHARED, length=SIZE):
    address = libc.mmap(None, length, access, flags, fd, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    return address


def poke(address):
    ctypes.string_at(address, 1)
    ctypes.memmove(address, TEXT, len(TEXT))


def write(fd):
    shared = mmap.mmap(fd, 0)
    shared[0]
    shared[: len(TEXT)] = TEXT


def rw(name, more=0):
    return os.open(name, os.O_RDWR | more)


def plain(name):
    write(rw(name))


def child(name):
    pid = os.fork()
    if pid == 0:
        write(rw(name))
        os._exit(0)
    os.waitpid(pid, 0)


def grandchild_of_a_mapping(name):
    address = raw(rw(name))
    if os.fork() == 0:
        poke(address)
        os._exit(0)
    os.wait()


def swapped(name):
    other, real = os.open("/dev/null", os.O_RDWR), rw(name)
    slot = os.dup(other)
    done = []

    def swap():
        while not done:
            os.dup2(real, slot)
            os.dup2(other, slot)

    thread = threading.Thread(target=swap)
    thread.start()
    for _ in range(100000):
        try:
            write(slot)
            break
        except (OSError, ValueError):
            pass
    done.append(True)
    thread.join()
    # Whatever the race gave.
    write(real)


def protected_later(name):
    address = raw(rw(name), READ)
    ctypes.string_at(address, 1)
    libc.mprotect(address, SIZE, READ | WRITE)
    poke(address)


def validated(name):
    try:
        poke(raw(rw(name), flags=VALIDATE))
    except OSError:
        # gVisor does not have it.
        poke(raw(rw(name)))


def moved(name):
    address = libc.mremap(raw(rw(name), length=4096), 4096, SIZE, 1)
    poke(address)


def reopened(name):
    handle = os.open(name, os.O_PATH)
    write(rw(f"/proc/self/fd/{handle}"))


def unseen_from_the_start(name):
    try:
        fd = rw(name, NOATIME)
    except OSError as refused:
        report("opened unseen", False, name_of(refused))
        fd = rw(name)
    else:
        report("opened unseen", True)
    write(fd)


def unseen_later(name):
    fd = rw(name)
    try:
        fcntl.fcntl(fd, F_SETFL, NOATIME)
        report("made unseen", True)
    except OSError as refused:
        report("made unseen", False, name_of(refused))
    write(fd)


def unseen_by_a_structure(name):
    how = struct.pack("QQQ", os.O_RDWR | NOATIME, 0, 0)
    try:
        fd = syscall(437, -100, name.encode(), how, 24)
        report("opened unseen by openat2", True)
    except OSError as refused:
        report("opened unseen by openat2", False, name_of(refused))
        fd = rw(name)
    write(fd)


def by_the_kernel(name):
    reading, writing = os.pipe()
    os.write(writing, TEXT)
    shared = mmap.mmap(rw(name), 0)
    shared[0]
    os.readv(reading, [memoryview(shared)[: len(TEXT)]])


def passed(name):
    here, there = socket.socketpair()
    socket.send_fds(here, [b"x"], [rw(name)])
    write(socket.recv_fds(there, 1, 1)[1][0])


def restored(name):
    found = os.stat(name)
    with open(name, "r+b") as file:
        file.write(TEXT)
    os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns))


def mapped_and_restored(name):
    found = os.stat(name)
    write(rw(name))
    os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns))


def resized(name):
    found = os.stat(name)
    os.truncate(name, 0)
    os.truncate(name, SIZE)
    write(rw(name))
    os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns))


def punched(name):
    found = os.stat(name)
    fd = rw(name)
    libc.fallocate(fd, PUNCH_KEEP_SIZE, 8192, 8192)
    write(fd)
    os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns))


def removed(name):
    found = os.stat(name)
    address = raw(rw(name))
    libc.madvise(address + 8192, 8192, MADV_REMOVE)
    poke(address)
    os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns))


def linked(name):
    os.link(name, name + ".link")
    write(rw(name + ".link"))
    os.unlink(name + ".link")


# Those that leave times as they are.
HIDDEN = [
    plain, child, grandchild_of_a_mapping, swapped, protected_later, validated, moved, reopened,
    unseen_from_the_start, unseen_later, unseen_by_a_structure, by_the_kernel, passed,
]
OTHERS = [restored, mapped_and_restored, resized, punched, removed, linked]


def times(name):
    found = os.stat(name)
    return [found.st_ctime_ns, found.st_mtime_ns, found.st_size]


for way in HIDDEN + OTHERS:
    name = way.__name__
    if ROUND == "make":
        with open(name, "wb") as file:
            file.write(b"first" * (SIZE // 5))
        continue
    before = times(name)
    way(name)
    if way in HIDDEN:
        report(f"times stayed: {name}", before == times(name))
report("names", True, value=[way.__name__ for way in HIDDEN + OTHERS])
