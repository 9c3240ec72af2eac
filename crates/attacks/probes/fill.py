# Fills a folder in one of several ways, up to a bound of its own.
FOLDER, TOTAL, WAY = ARGS["folder"], ARGS["bytes"], ARGS["way"]
STEP = 1 << 20


def bytes_on_disk(path):
    return os.stat(path).st_blocks * 512


def written():
    with open(os.path.join(FOLDER, "fill"), "wb", buffering=0) as file:
        for _ in range(TOTAL // STEP):
            file.write(b"x" * STEP)
    return bytes_on_disk(file.name)


def allocated():
    file = os.open(os.path.join(FOLDER, "allocated"), os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(file, 0, TOTAL)
    return os.fstat(file).st_blocks * 512


def many_small():
    for number in range(TOTAL // 4096):
        with open(os.path.join(FOLDER, f"small-{number}"), "wb") as file:
            file.write(b"x" * 4096)
    return TOTAL


def mapped():
    import mmap
    file = os.open(os.path.join(FOLDER, "mapped"), os.O_CREAT | os.O_RDWR)
    os.ftruncate(file, TOTAL)
    view = mmap.mmap(file, TOTAL)
    for offset in range(0, TOTAL, 4096):
        view[offset] = 1
    return bytes_on_disk(os.path.join(FOLDER, "mapped"))


def unlinked():
    files = []
    for number in range(TOTAL // STEP):
        path = os.path.join(FOLDER, f"gone-{number}")
        file = os.open(path, os.O_CREAT | os.O_RDWR)
        os.unlink(path)
        files.append(file)
        os.write(file, b"x" * STEP)
    return TOTAL


def empty_files():
    made = 0
    for number in range(ARGS["count"]):
        if number % 1000 == 0:
            folder = os.path.join(FOLDER, f"empty-{number // 1000}")
            os.mkdir(folder)
        os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY))
    return ARGS["count"]


def attributes():
    """Extended attributes are memory too."""
    for number in range(ARGS["count"]):
        path = os.path.join(FOLDER, f"attribute-{number}")
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        os.setxattr(path, "user.fill", b"x" * 3000)
    return ARGS["count"]


attempt(WAY, {
    "written": written,
    "allocated": allocated,
    "many small": many_small,
    "mapped": mapped,
    "unlinked": unlinked,
    "empty files": empty_files,
    "attributes": attributes,
}[WAY])
