# System calls by other entry points: the 32-bit gate, the x32 numbers, unassigned numbers.
import mmap

GETPID_64, GETPID_32 = 39, 20
X32 = 0x40000000


def gate32(number, argument=0):
    code = (
        b"\x53"  # push rbx
        + b"\xb8" + struct.pack("I", number)  # mov eax, number
        + b"\xbb" + struct.pack("I", argument)  # mov ebx, argument
        + b"\xcd\x80"  # int 0x80
        + b"\x5b\xc3"  # pop rbx; ret
    )
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


attempt("64-bit entry point, which stays open", lambda: syscall(GETPID_64) == os.getpid())
attempt("getpid by the 32-bit gate", lambda: gate32(GETPID_32) == os.getpid())
attempt("unshare by the 32-bit gate", served(lambda: gate32(310, 0x40000000)))
attempt("getpid as x32", lambda: syscall(X32 | GETPID_64) == os.getpid())
attempt("unshare as x32", served(lambda: syscall(X32 | 272, 0x40000000)))


def answered(numbers):
    """Numbers that got another answer than a refusal."""
    found = []
    for number in numbers:
        def run(number=number):
            try:
                syscall(number, -1, -1, -1, -1, -1, -1)
            except OSError as error:
                return name_of(error) not in ("ENOSYS", "EPERM", "EACCES")
            return True

        if in_child(run)[0]:
            found.append(number)
    return found or False


attempt("unknown numbers", lambda: answered(list(range(480, 560)) + [1000, 65535, 1 << 30, 1 << 31]),
        fork=False)
# Calls younger than this profile's base: statmount, listmount, lsm_*, open_tree_attr.
for name, number in ARGS["young"].items():
    attempt("young " + name, served(lambda: syscall(number, -1, -1, -1, -1, -1)))
