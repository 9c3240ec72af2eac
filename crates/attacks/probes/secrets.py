# Looks for what is hidden in a mounted folder, by reading, by listing, and by trying to get it out of
# the way.
ROOT = ARGS["root"]
TEXT = ARGS["text"].encode()


def reads(path):
    with open(path, "rb") as file:
        return TEXT in file.read(1 << 16)


def found(root):
    for folder, _, files in os.walk(root):
        for name in files:
            try:
                if reads(os.path.join(folder, name)):
                    return True
            except OSError:
                pass
    return False


for path in ARGS["files"]:
    attempt(f"read {path}", lambda: reads(f"{ROOT}/{path}"))
attempt("find by looking everywhere", lambda: found(ROOT))

for path in ARGS["files"]:
    top = f"{ROOT}/{path}"
    # What is removed or moved away must not uncover anything.
    for number, way in enumerate(
        (
            lambda: os.unlink(top),
            lambda: os.rmdir(os.path.dirname(top)),
            lambda: os.rename(top, f"{ROOT}/moved"),
            lambda: os.rename(os.path.dirname(top), f"{ROOT}/moved-{len(path)}"),
            lambda: os.link(top, f"{ROOT}/linked"),
            lambda: syscall(166, top.encode() + b"\0", 2),
        )
    ):
        try:
            way()
        except OSError:
            pass
attempt("find after moving and removing", lambda: found(ROOT))
