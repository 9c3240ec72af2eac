# Ways to answer a call in the place of whoever is asked about it, or to change a program that has
# just been started.
ALLOW = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
SECCOMP, PRCTL = 317, 157
HIGH = 1 << 32


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


PROGRAM = Filter(1, ALLOW)


def filtered(number, *arguments):
    def run():
        syscall(PRCTL, 38, 1, 0, 0, 0)
        syscall(number, *arguments)
        return "added"

    return run


def memory_of_another():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(reader, 1)
        os._exit(0)
    try:
        with open(f"/proc/{pid}/mem", "r+b", buffering=0):
            return "opened"
    finally:
        os.write(writer, b".")
        os.waitpid(pid, 0)


pointer = ctypes.addressof(PROGRAM)
attempt("a filter", filtered(SECCOMP, 1, 0, pointer))
attempt("a filter for all threads", filtered(SECCOMP, 1, 1, pointer))
attempt("a filter that logs", filtered(SECCOMP, 1, 2, pointer))
attempt("a filter with bits that mean nothing", filtered(SECCOMP, 1 | HIGH, 0, pointer))
attempt("a filter by prctl", filtered(PRCTL, 22, 2, pointer, 0, 0))
attempt("a filter by prctl with bits that mean nothing", filtered(PRCTL, 22 | HIGH, 2, pointer, 0, 0))
if ARGS.get("memory"):
    attempt("memory of another process", memory_of_another)
