# One host directory, mounted twice: read-only and writable. Nothing crosses over.
RO, RW = ARGS["read_only"], ARGS["writable"]
RENAMEAT2, LINKAT, AT_FDCWD = 316, 265, -100
RENAME_EXCHANGE, AT_SYMLINK_FOLLOW = 2, 0x400


def make(name):
    with open(os.path.join(RW, name), "w") as file:
        file.write("made on the writable side")
    return os.path.join(RW, name)


def exchange(a, b):
    syscall(RENAMEAT2, AT_FDCWD, a.encode(), AT_FDCWD, b.encode(), RENAME_EXCHANGE)


def descriptor_link(source, target):
    file = os.open(source, os.O_RDWR)
    link = f"/proc/self/fd/{file}".encode()
    syscall(LINKAT, AT_FDCWD, link, AT_FDCWD, target.encode(), AT_SYMLINK_FOLLOW)


def to(name):
    return os.path.join(ARGS.get("into", RO), name)


attempt("rename across", lambda: os.rename(make("a"), to("a2")))
attempt("link across", lambda: os.link(make("b"), to("b2")))
attempt("exchange across", lambda: exchange(make("c"), to("there")))
attempt("link a descriptor across", lambda: descriptor_link(make("d"), to("d2")))
