# Asks for programs that the kernel does not start, and for others in ways that are hard to see.
import ctypes
import mmap
import os
import subprocess
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
TRUE = b"/usr/bin/true"


def words(*texts):
    return (ctypes.c_char_p * (len(texts) + 1))(*[text.encode() for text in texts], None)


def fails(path, mark, environment, *more):
    LIBC.execve(path, words("x", "fails-" + mark, *more), environment)


def make(name, text, mode):
    with open(name, "w") as file:
        file.write(text)
    os.chmod(name, mode)


def child(become):
    pid = os.fork()
    if pid == 0:
        try:
            become()
        finally:
            os._exit(99)
    return os.waitpid(pid, 0)[1]


make("/workspace/mode", "#!/bin/sh\n", 0o644)
make("/workspace/format", "no program\n", 0o755)
make("/workspace/script", "#!/bin/sh\n", 0o755)
fails(TRUE, "environment", ctypes.c_void_p(8))
fails(b"/workspace/mode", "mode", words())
fails(b"/workspace/format", "format", words())
fails(TRUE, "size", words(), *["x" * 100_000] * 100)
fails(b"/tmp", "folder", words())
# After this one it is known that the one before was not started.
LIBC.execve(b"/nowhere", words("x"), words())

held = os.open(TRUE, os.O_PATH)
os.symlink("/proc/self/root/usr/bin/true", "/workspace/link")
for path, mark in [
    (TRUE, "plain"),
    (b"/proc/self/root/usr/bin/true", "root"),
    (b"/workspace/link", "link"),
    (b"/proc/self/fd/%d" % held, "descriptor"),
    (b"/proc/%d/fd/%d" % (os.getpid(), held), "another"),
    (b"/workspace/script", "script"),
]:
    assert child(lambda: LIBC.execve(path, words("x", "works-" + mark), words())) == 0, mark
assert child(lambda: LIBC.syscall(322, held, b"", words("x", "works-empty"), words(), 0x1000)) == 0


def by_a_thread():
    """Not the first thread of its process."""
    asks = lambda: LIBC.execve(TRUE, words("x", "works-thread"), words())
    thread = threading.Thread(target=asks)
    thread.start()
    thread.join()


assert child(by_a_thread) == 0

shared = mmap.mmap(-1, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(shared))
going = True


def ask(number):
    child(lambda: LIBC.execve(ctypes.c_void_p(address), words("x", f"round-{number}"), words()))


def swap():
    while going:
        shared[:14] = b"/usr/bin/true\0"
        shared[:14] = b"/usr/bin/echo\0"


# One of each while nothing changes, so that a busy machine meets both.
for number, path in enumerate((b"/usr/bin/true\0", b"/usr/bin/echo\0")):
    shared[:14] = path
    ask(number)
thread = threading.Thread(target=swap)
thread.start()
for number in range(2, 40):
    ask(number)
going = False
thread.join()
