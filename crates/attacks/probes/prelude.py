# Stands in front of every probe. A probe prints one JSON line per attempt; `ok` means that the
# attack worked. The harness adds a last line, so that a probe that died half-way is noticed.
import ctypes
import errno
import json
import os
import select
import signal
import struct
import sys
import time

ARGS = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
PATIENCE = 10


def report(attempt, ok, error=None, value=None):
    line = {"attempt": attempt, "ok": bool(ok), "errno": error, "value": value}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def syscall(number, *arguments):
    """A raw system call: integers are passed with all 64 bits, bytes as pointers."""
    converted = [
        ctypes.c_ulong(a & (2**64 - 1)) if isinstance(a, int) else a for a in arguments
    ]
    ctypes.set_errno(0)
    result = LIBC.syscall(ctypes.c_long(number), *converted)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def name_of(error):
    if isinstance(error, OSError) and error.errno:
        return errno.errorcode.get(error.errno, str(error.errno))
    return type(error).__name__


def outcome_of(action):
    """What `action` says: a value for success, False for failure, an exception with its errno."""
    try:
        value = action()
    except Exception as error:
        return [False, name_of(error), None]
    if value is False:
        return [False, None, None]
    return [True, None, value if isinstance(value, (int, str, list, dict)) else None]


def in_child(action):
    """The same in a process of its own, which may die of it."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(outcome_of(action)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], PATIENCE)
    answer = os.read(reader, 1 << 16) if ready else b""
    os.close(reader)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if answer:
        return json.loads(answer)
    if not ready:
        return [False, "timed out", None]
    died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return [False, signal.Signals(died).name if died else "no answer", None]


def attempt(name, action, fork=True):
    ok, error, value = in_child(action) if fork else outcome_of(action)
    report(name, ok, error, value)
    return ok


def served(action):
    """The call counts as served if the kernel went as far as to look at its arguments: a wrong
    argument is answered with another error than the refusal of the call itself."""

    def run():
        try:
            action()
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOSYS, errno.EACCES):
                raise
            return "served: " + name_of(error)
        return "worked"

    return run


def require_own_pid_namespace():
    """Dangerous signals are only sent where they can reach nothing but this probe's own fence."""
    if os.readlink("/proc/self/ns/pid") == ARGS["host_pid_namespace"]:
        report("fence", False, "not in a pid namespace of its own")
        sys.exit(70)


def by_name():
    """The process that is called like the marker."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    if file.read().split(b"\0")[0] == ARGS["marker"].encode():
                        return int(entry)
            except OSError:
                pass
    return False


def become(name, seconds):
    """Turns this process into a sleeper that can be found by its name."""
    os.execv("/bin/sleep", [name, str(seconds)])


def daemonise(name, seconds):
    """A sleeper that left its session, its parent and its streams. It has its name when this returns."""
    started, starting = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            null = os.open("/dev/null", os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            become(name, seconds)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(starting)
    os.read(started, 1)
    os.close(started)
