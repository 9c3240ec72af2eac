"""Tries one thing after another and says which of them worked. Arguments: a folder of its own."""
import ctypes, glob, os, shutil, subprocess, sys

folder = sys.argv[1]
victim = "/usr/bin/id"
loader = glob.glob("/lib64/ld-linux-*.so.*") + glob.glob("/lib/ld-linux-*.so.*")
libm = glob.glob("/usr/lib/*/libm.so.6")[0]
libc = ctypes.CDLL(None, use_errno=True)


def at(name):
    return os.path.join(folder, name)


def start(*args):
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def copied(name):
    shutil.copy(victim, at(name))
    return at(name)


def link():
    os.symlink(victim, at("true"))
    start(at("true"))


def hard_link():
    # Of a copy, since the folder may be on another disk.
    os.link(copied("first"), at("second"))
    start(at("second"))


def script(interpreter):
    path = at(f"script-for-{os.path.basename(interpreter)}")
    with open(path, "w") as file:
        file.write(f"#!{interpreter} -u\n")
    os.chmod(path, 0o755)
    # The interpreter may not like the file; that it ran is enough.
    code = subprocess.run([path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    if code < 0:
        raise OSError(f"ended by signal {-code}")


def memory_file():
    fd = os.memfd_create("true")
    with open(victim, "rb") as file:
        os.write(fd, file.read())
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
            os.execve(fd, ["id"], {})
        finally:
            os._exit(99)
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError("not started")


def own_library():
    shutil.copy(libm, at("libmine.so"))
    ctypes.CDLL(at("libmine.so"))


def mount():
    if libc.mount(b"none", folder.encode(), b"tmpfs", 0, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    libc.umount(folder.encode())


def open_to_write(path):
    with open(path, "r+b", buffering=0):
        pass


for name, attempt in {
    "true": lambda: start("/usr/bin/true"),
    "denied": lambda: start(victim),
    "read": lambda: open(victim, "rb").close(),
    "copy": lambda: start(copied("copy")),
    "copy-called-id": lambda: start(copied("id")),
    "link": link,
    "hard-link": hard_link,
    "loader": lambda: start(loader[0], victim),
    "loader-copy": lambda: start(loader[0], copied("loaded")),
    "loader-alone": lambda: start(loader[0], "/usr/bin/true"),
    "memory-file": memory_file,
    "script": lambda: script("/usr/bin/python3"),
    "script-for-denied": lambda: script(victim),
    "library": lambda: ctypes.CDLL(libm),
    "own-library": own_library,
    "program-written": lambda: open_to_write("/usr/bin/true"),
    "host-name": lambda: open_to_write("/proc/sys/kernel/hostname"),
    "mount": mount,
}.items():
    try:
        attempt()
        print(name)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{name}: {error}", file=sys.stderr)
