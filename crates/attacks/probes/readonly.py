# Every way to change a folder. `prepare` makes the files that the attempts work on.
FOLDER = ARGS["folder"]
FILES = ["write", "truncate", "unlink", "chmod", "utime", "xattr", "reopen", "fallocate"]
PAIRS = ["rename", "exchange", "link"]
RENAMEAT2, AT_FDCWD, RENAME_EXCHANGE = 316, -100, 2
O_TMPFILE = 0o20200000


def at(name):
    return os.path.join(FOLDER, name)


if ARGS.get("prepare"):
    for name in FILES + [pair + end for pair in PAIRS for end in ("-a", "-b")]:
        with open(at(name), "w") as file:
            file.write("x" * 16)
    os.mkdir(at("rmdir"))


def opened(name, flags):
    os.close(os.open(at(name), flags, 0o600))


def exchange():
    syscall(
        RENAMEAT2, AT_FDCWD, at("exchange-a").encode(), AT_FDCWD, at("exchange-b").encode(),
        RENAME_EXCHANGE,
    )


def reopen():
    handle = os.open(at("reopen"), os.O_PATH)
    os.close(os.open(f"/proc/self/fd/{handle}", os.O_WRONLY))


def fallocate():
    file = os.open(at("fallocate"), os.O_RDWR)
    os.posix_fallocate(file, 0, 4096)


attempt("create", lambda: opened("created", os.O_CREAT | os.O_WRONLY))
attempt("write", lambda: opened("write", os.O_WRONLY))
attempt("truncate", lambda: os.truncate(at("truncate"), 1))
attempt("unlink", lambda: os.unlink(at("unlink")))
attempt("rename", lambda: os.rename(at("rename-a"), at("rename-b")))
attempt("exchange", exchange)
attempt("link", lambda: os.link(at("link-a"), at("linked")))
attempt("symlink", lambda: os.symlink("/etc/passwd", at("symlinked")))
attempt("mkdir", lambda: os.mkdir(at("made")))
attempt("rmdir", lambda: os.rmdir(at("rmdir")))
attempt("chmod", lambda: os.chmod(at("chmod"), 0o640))
attempt("utime", lambda: os.utime(at("utime"), (1, 1)))
attempt("xattr", lambda: os.setxattr(at("xattr"), "user.brig", b"1"))
attempt("fifo", lambda: os.mkfifo(at("fifo")))
attempt("unnamed file", lambda: os.close(os.open(FOLDER, O_TMPFILE | os.O_RDWR, 0o600)))
attempt("reopen", reopen)
attempt("fallocate", fallocate)
