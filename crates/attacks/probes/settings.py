# Which settings of the kernel can be opened for writing. Nothing is ever written.
def openable(root, skip=()):
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if os.path.join(folder, f) not in skip]
        for name in files:
            path = os.path.join(folder, name)
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY))
                found.append(path)
            except OSError:
                pass
    return found


def top_of_proc():
    found = []
    for name in os.listdir("/proc"):
        path = "/proc/" + name
        if os.path.isfile(path) and os.access(path, os.W_OK):
            found.append(path)
    return found


for name, found in (
    ("/proc/sys", openable("/proc/sys")),
    ("/sys", openable("/sys")),
    ("top of /proc", top_of_proc()),
):
    report(name, bool(found), value=found[:20])

for path in ARGS["secrets"]:
    def peek(path=path):
        with open(path, "rb") as file:
            return len(file.read(16)) > 0

    attempt("read " + path, peek)
