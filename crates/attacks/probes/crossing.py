# One folder of the host, mounted twice: read-only and writable. Nothing crosses over.
RO, RW = ARGS["read_only"], ARGS["writable"]
RENAMEAT2, AT_FDCWD, RENAME_EXCHANGE = 316, -100, 2


def make(name):
    with open(os.path.join(RW, name), "w") as file:
        file.write("made on the writable side")
    return os.path.join(RW, name)


def exchange(a, b):
    syscall(RENAMEAT2, AT_FDCWD, a.encode(), AT_FDCWD, b.encode(), RENAME_EXCHANGE)


def descriptor_link(source, target):
    file = os.open(source, os.O_RDWR)
    os.link(f"/proc/self/fd/{file}", target, follow_symlinks=True)


def to(name):
    return os.path.join(ARGS.get("into", RO), name)


attempt("rename across", lambda: os.rename(make("a"), to("a2")))
attempt("link across", lambda: os.link(make("b"), to("b2")))
attempt("exchange across", lambda: exchange(make("c"), to("there")))
attempt("link a descriptor across", lambda: descriptor_link(make("d"), to("d2")))
attempt("bind a socket", lambda: __import__("socket").socket(1).bind(to("socket")))
