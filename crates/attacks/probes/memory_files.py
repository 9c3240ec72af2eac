# Runs a program that never was a file: from a memory file, from a writable place.
import shutil

MEMFD_CREATE, EXECVEAT, MFD_EXEC = 319, 322, 0x10
with open("/bin/true", "rb") as file:
    PROGRAM = file.read()


def run(path):
    child = os.fork()
    if child == 0:
        try:
            os.execv(path, ["true"])
        except OSError as error:
            os._exit(100 + min(error.errno, 100))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 100:
        raise OSError(code - 100, os.strerror(code - 100))
    return code == 0


def from_memory(flags):
    file = syscall(MEMFD_CREATE, b"brig", flags)
    os.write(file, PROGRAM)
    return run(f"/proc/self/fd/{file}")


attempt("a memory file", lambda: from_memory(0))
attempt("a memory file made executable", lambda: from_memory(MFD_EXEC))
