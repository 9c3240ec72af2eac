# Takes memory in one of several ways, up to a bound of its own. Pages are really written.
import mmap
import resource
import socket
import threading

TOTAL, STEP = ARGS["bytes"], 1 << 20
PAGE = b"x" * STEP
END = time.monotonic() + ARGS["seconds"]
WAY = ARGS["way"]
kept = []
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def hold():
    """Stay, so that the sum is there at one moment."""
    report("took all of it", True, value=TOTAL)
    while time.monotonic() < END:
        time.sleep(0.05)


def written(mapping, size):
    for offset in range(0, size, 4096):
        mapping[offset] = 1


def one_process():
    for _ in range(TOTAL // STEP):
        mapping = mmap.mmap(-1, STEP)
        written(mapping, STEP)
        kept.append(mapping)


def without_main_thread():
    """The process goes on, and looks as if it had ended."""
    def take():
        time.sleep(0.2)
        try:
            one_process()
            hold()
        except (OSError, MemoryError) as refused:
            report("took all of it", False, name_of(refused))
        report("end of the probe", True)
        os._exit(0)

    threading.Thread(target=take).start()
    EXIT = 60 if os.uname().machine == "x86_64" else 93
    LIBC.syscall(EXIT, 0)


def children_without_main_thread():
    share = TOTAL // ARGS["processes"]
    for _ in range(ARGS["processes"]):
        if os.fork() == 0:
            globals()["TOTAL"] = share
            globals()["report"] = lambda *_, **__: None
            without_main_thread()
    time.sleep(max(0, END - time.monotonic() - 1))


def many_processes():
    share = TOTAL // ARGS["processes"]
    for _ in range(ARGS["processes"]):
        if os.fork() == 0:
            mapping = mmap.mmap(-1, share, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            written(mapping, share)
            while time.monotonic() < END:
                time.sleep(0.05)
            os._exit(0)
    time.sleep(max(0, END - time.monotonic() - 1))


def shared_mapping():
    mapping = mmap.mmap(-1, TOTAL)
    written(mapping, TOTAL)
    kept.append(mapping)


def memory_file():
    MFD_NOEXEC_SEAL = 8
    try:
        file = os.memfd_create("brig", MFD_NOEXEC_SEAL)
    except OSError:
        file = os.memfd_create("brig")
    for _ in range(TOTAL // STEP):
        os.write(file, PAGE)
    kept.append(file)


def fill_folder():
    with open(os.path.join(ARGS["folder"], ARGS.get("file", "fill")), "wb") as file:
        for _ in range(TOTAL // STEP):
            file.write(PAGE)


def system_v():
    SHMGET, SHMAT = 29, 30
    LIBC.shmat.restype = ctypes.c_void_p
    for _ in range(TOTAL // (16 * STEP)):
        segment = syscall(SHMGET, 0, 16 * STEP, 0o1600)
        address = LIBC.shmat(segment, None, 0)
        if address in (None, 2**64 - 1):
            raise OSError(ctypes.get_errno(), "shmat")
        ctypes.memset(address, 1, 16 * STEP)
        LIBC.shmdt(ctypes.c_void_p(address))


def pipes():
    """Bytes that nobody reads wait in the kernel's memory."""
    waiting = 0
    while waiting < TOTAL:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        kept.append((reader, writer))
        try:
            while True:
                waiting += os.write(writer, PAGE[:65536])
        except BlockingIOError:
            pass


def sockets():
    waiting = 0
    while waiting < TOTAL:
        left, right = socket.socketpair()
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        left.setblocking(False)
        kept.append((left, right))
        try:
            while True:
                waiting += left.send(PAGE)
        except BlockingIOError:
            pass


def tcp():
    """Connections to oneself whose bytes nobody reads."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1000)
    waiting = 0
    while waiting < TOTAL:
        client = socket.socket()
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            client.setsockopt(socket.SOL_SOCKET, option, 1 << 22)
        client.connect(listener.getsockname())
        server = listener.accept()[0]
        kept.append((client, server))
        for end in (client, server):
            end.setblocking(False)
            try:
                while waiting < TOTAL:
                    waiting += end.send(PAGE)
            except BlockingIOError:
                pass


def remapped():
    """MREMAP_DONTUNMAP keeps the old range while its pages move on."""
    MMAP, MREMAP, MAYMOVE_DONTUNMAP = 9, 25, 1 | 4
    for _ in range(TOTAL // STEP):
        address = syscall(MMAP, 0, STEP, 3, 0x22, -1, 0)
        for _ in range(2):
            ctypes.memset(address, 1, STEP)
            address = syscall(MREMAP, address, STEP, STEP, MAYMOVE_DONTUNMAP, 0)
        ctypes.memset(address, 1, STEP)


def page_tables():
    """Reading memory that was never written takes no page but those of the page tables."""
    MMAP, MADVISE, NO_HUGE_PAGES, PRIVATE, NORESERVE = 9, 28, 15, 0x22, 0x4000
    described = 2 << 20
    size = TOTAL // 4096 * described
    start = syscall(MMAP, 0, size, 1, PRIVATE | NORESERVE, -1, 0)
    syscall(MADVISE, start, size, NO_HUGE_PAGES)
    for address in range(start, start + size, described):
        ctypes.c_char.from_address(address).value


def semaphores():
    SEMGET, IN_ONE, EACH = 64, 32000, 64
    for _ in range(TOTAL // (IN_ONE * EACH)):
        syscall(SEMGET, 0, IN_ONE, 0o600)


def untouched():
    for _ in range(TOTAL // (64 * STEP)):
        kept.append(mmap.mmap(-1, 64 * STEP, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def read_files():
    """The page cache of files that are only read can be taken back: no reason to be killed."""
    read = 0
    for folder, _, files in os.walk("/usr/lib"):
        for name in files:
            path = os.path.join(folder, name)
            if read < TOTAL and os.path.isfile(path) and not os.path.islink(path):
                try:
                    with open(path, "rb") as file:
                        while chunk := file.read(STEP):
                            read += len(chunk)
                except OSError:
                    pass


WAYS = {
    "one process": one_process,
    "many processes": many_processes,
    "without a main thread": without_main_thread,
    "children without a main thread": children_without_main_thread,
    "shared mapping": shared_mapping,
    "memory file": memory_file,
    "folder": fill_folder,
    "system v": system_v,
    "pipes": pipes,
    "sockets": sockets,
    "tcp": tcp,
    "remapped": remapped,
    "page tables": page_tables,
    "semaphores": semaphores,
    "untouched": untouched,
    "read files": read_files,
}
try:
    WAYS[WAY]()
    hold()
except (OSError, MemoryError, ValueError) as refused:
    report("took all of it", False, name_of(refused))
