# Changes what files hold through mappings, which need not change any of their times.
import mmap

TEXT = ARGS["text"].encode()
NAMES = ["plain", "linked", "deep/er/file", "closed"]


def times(path):
    found = os.stat(path)
    return [found.st_ctime_ns, found.st_mtime_ns, found.st_size]


def change(path):
    fd = os.open(path, os.O_RDWR)
    shared = mmap.mmap(fd, 0)
    os.close(fd)
    # Reading comes first: the page is there then, and no fault tells of the write.
    shared[0]
    shared[: len(TEXT)] = TEXT
    return shared


if not os.path.exists("plain"):
    os.makedirs("deep/er")
    for name in NAMES + ["left"]:
        with open(name, "wb") as file:
            file.write(b"first" * 20000)
    os.link("linked", "another")
    os.chmod("closed", 0o600)
else:
    before = [times(name) for name in NAMES]
    for name in NAMES:
        change(name)
    report("times stayed", before == [times(name) for name in NAMES])
    # One that is still at it when the program has ended.
    if os.fork() == 0:
        shared = change("left")
        while True:
            shared[-1] = (shared[-1] + 1) % 256
    while open("left", "rb").read(len(TEXT)) != TEXT:
        time.sleep(0.01)
report("written", True)
