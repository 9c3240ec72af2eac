# Tries to get at what a stand-in covers, and at the stand-in itself.
import shutil

PATH = ARGS["path"]
FOLDER = ARGS["folder"]


def write(path):
    with open(path, "r+b") as file:
        file.write(b"x")
    return True


def read(path):
    with open(path, "rb") as file:
        return len(file.read(4)) == 4


def rename():
    os.rename(PATH, PATH + ".old")
    os.rename(PATH + ".old", PATH)
    return True


attempt("read it", lambda: read(PATH))
attempt("map it", lambda: bool(__import__("mmap").mmap(os.open(PATH, os.O_RDONLY), 4, prot=1)))
attempt("copy it", lambda: bool(shutil.copy(PATH, os.path.join(FOLDER, "copy"))))
attempt("link it", lambda: os.link(PATH, os.path.join(os.path.dirname(PATH), "linked")) is None)
attempt("change its mode", lambda: os.chmod(PATH, 0o755) is None)
attempt("write to it", lambda: write(PATH))
attempt("rename it", rename)
attempt("remove it", lambda: os.unlink(PATH) is None)
