"""Ways to a denied file that no name leads to, and records of starts that never were."""

import ctypes
import os
import shutil
import struct
import subprocess
import time

LIBC = ctypes.CDLL(None, use_errno=True)


def make(path, text):
    with open(path, "wb") as file:
        file.write(text)
    os.chmod(path, 0o755)


def static(proof):
    """A program without a C library: its child makes a file, and it ends at once."""
    path = proof.encode() + b"\0"
    tail = b"\xb8\xe7\0\0\0\x31\xff\x0f\x05"  # exit_group(0)
    child = b"\xb8\x55\0\0\0\x48\x8d\x3d" + struct.pack("<i", 7 + len(tail))
    child += b"\xbe\xa4\x01\0\0\x0f\x05"  # creat(path, 0644)
    code = b"\xb8\x39\0\0\0\x0f\x05\x85\xc0\x75" + bytes([len(child)]) + child + tail + path
    size = 120 + len(code)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    head += struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, size, size, 0x1000)
    return head + code


def run(name, words):
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
        print(name, done.stdout.decode().strip() or done.returncode, flush=True)
    except OSError as error:
        print(name, type(error).__name__, flush=True)


def forge():
    """Looks like another program that has just started, again and again."""
    LIBC.getauxval.restype = ctypes.c_ulong
    LIBC.getauxval.argtypes = [ctypes.c_ulong]
    storage = ctypes.c_ulong()
    LIBC.syscall(ctypes.c_long(158), ctypes.c_long(0x1003), ctypes.byref(storage))
    random, path = LIBC.getauxval(25), LIBC.getauxval(31)
    fields = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
    start, end = int(fields[45]), int(fields[46])
    words = b"git\0push\0forged\0"
    ctypes.memmove(start, words.ljust(end - start, b"\0"), end - start)
    size = len(ctypes.string_at(path)) + 1
    ctypes.memmove(path, b"/usr/bin/git\0".ljust(size, b"\0")[:size], size)
    for letter in b"abc":
        ctypes.memset(random, letter, 16)
        print("storage", LIBC.syscall(ctypes.c_long(158), ctypes.c_long(0x1002), storage))
    # The same after a start that failed: the environment is at no address.
    argv = (ctypes.c_char_p * 3)(b"true", b"failed-start", None)
    LIBC.execve(b"/usr/bin/true", argv, ctypes.c_void_p(8))
    ctypes.memset(random, 100, 16)
    print("storage", LIBC.syscall(ctypes.c_long(158), ctypes.c_long(0x1002), storage), flush=True)


make("/tmp/brig-made", static("/tmp/proof-nested"))
make("/tmp/by-static", b"#!/tmp/brig-made\n")
run("static", ["/tmp/by-static"])
time.sleep(0.3)
print("nested", os.path.exists("/tmp/proof-nested"), flush=True)
make("/tmp/brig-made", b"#!/bin/sh\necho ran\n")
make("/tmp/by-script", b"#!/tmp/brig-made\n")
make("/tmp/by-two", b"#!/tmp/by-script\n")
run("script", ["/tmp/by-script"])
run("scripts", ["/tmp/by-two"])
os.chmod("/tmp/by-script", 0o111)
run("unreadable", ["/tmp/by-script"])
shutil.copy("/bin/echo", "/tmp/brig-made")
shutil.copy(LOADER, "/tmp/copied")
make("/tmp/by-loader", b"#!/tmp/copied /tmp/brig-made\n")
run("loader", ["/tmp/copied", "/tmp/brig-made", "ran"])
run("loader-of-script", ["/tmp/by-loader"])
run("control", ["/usr/bin/true", "real-start"])
forge()
