# Leaves programs with set-id bits in a folder that the host can see, in every way there is.
import stat

FOLDER = ARGS["folder"]
SYS = {"chmod": 90, "fchmod": 91, "creat": 85, "fchmodat": 268, "fchmodat2": 452, "openat2": 437}


def fresh(name):
    path = os.path.join(FOLDER, name)
    with open(path, "w") as file:
        file.write("#!/bin/sh\n")
    return path


def has_bits(path):
    return bool(os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID)) or False


def by_chmod(bits):
    path = fresh(f"chmod-{bits:o}")
    os.chmod(path, bits | 0o755)
    return has_bits(path)


def by_raw(call, bits):
    path = fresh(f"{call}-{bits:o}")
    if call == "fchmod":
        file = os.open(path, os.O_RDONLY)
        syscall(SYS[call], file, bits | 0o755)
    elif call == "chmod":
        syscall(SYS[call], path.encode(), bits | 0o755)
    else:
        syscall(SYS[call], -100, path.encode(), bits | 0o755, 0)
    return has_bits(path)


def by_open(bits, flags=os.O_CREAT | os.O_WRONLY):
    path = os.path.join(FOLDER, f"open-{bits:o}-{flags:o}")
    os.close(os.open(path, flags, bits | 0o755))
    return has_bits(path)


def by_creat(bits):
    path = os.path.join(FOLDER, f"creat-{bits:o}")
    os.close(syscall(SYS["creat"], path.encode(), bits | 0o755))
    return has_bits(path)


def by_openat2(bits):
    path = os.path.join(FOLDER, f"openat2-{bits:o}")
    how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, bits | 0o755, 0)
    os.close(syscall(SYS["openat2"], -100, path.encode(), how, len(how)))
    return has_bits(path)


def by_tmpfile(bits):
    path = os.path.join(FOLDER, f"tmpfile-{bits:o}")
    file = os.open(FOLDER, os.O_TMPFILE | os.O_RDWR, bits | 0o755)
    AT_SYMLINK_FOLLOW = 0x400
    syscall(265, -100, f"/proc/self/fd/{file}".encode(), -100, path.encode(), AT_SYMLINK_FOLLOW)
    return has_bits(path)


def by_mknod(bits):
    path = os.path.join(FOLDER, f"mknod-{bits:o}")
    os.mknod(path, bits | 0o755 | stat.S_IFREG)
    return has_bits(path)


os.umask(0)
for bits in (0o4000, 0o2000):
    attempt(f"chmod {bits:o}", lambda: by_chmod(bits))
    for call in ("chmod", "fchmod", "fchmodat", "fchmodat2"):
        attempt(f"raw {call} {bits:o}", lambda: by_raw(call, bits))
    attempt(f"open {bits:o}", lambda: by_open(bits))
    attempt(f"creat {bits:o}", lambda: by_creat(bits))
    attempt(f"openat2 {bits:o}", lambda: by_openat2(bits))
    attempt(f"tmpfile {bits:o}", lambda: by_tmpfile(bits))
    attempt(f"mknod {bits:o}", lambda: by_mknod(bits))
