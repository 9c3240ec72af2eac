# io_uring would do file and network operations past every filter on system calls.
SETUP, ENTER, REGISTER = 425, 426, 427


def read_through_a_ring():
    """Opens a ring, queues one read of this file and looks for the answer."""
    parameters = ctypes.create_string_buffer(120)
    ring = syscall(SETUP, 4, parameters)
    import mmap
    sq_off = struct.unpack_from("10I", parameters, 40)
    cq_off = struct.unpack_from("10I", parameters, 80)
    sq_entries, cq_entries = struct.unpack_from("II", parameters, 0)
    rings = mmap.mmap(ring, max(sq_off[6] + sq_entries * 4, cq_off[5] + cq_entries * 16), offset=0)
    entries = mmap.mmap(ring, sq_entries * 64, offset=0x10000000)
    file = os.open(ARGS["file"], os.O_RDONLY)
    buffer = ctypes.create_string_buffer(16)
    IORING_OP_READ = 22
    entries[0:64] = struct.pack(
        "=BBHiQQIIQ", IORING_OP_READ, 0, 0, file, 0, ctypes.addressof(buffer), 8, 0, 7
    ).ljust(64, b"\0")
    tail = struct.unpack_from("I", rings, sq_off[1])[0]
    struct.pack_into("I", rings, sq_off[6], 0)
    struct.pack_into("I", rings, sq_off[1], tail + 1)
    syscall(ENTER, ring, 1, 1, 1, 0, 0)
    _, result, _ = struct.unpack_from("=QiI", rings, cq_off[5])
    return result > 0 and buffer.raw[:result].decode(errors="replace")


attempt("io_uring_setup", lambda: syscall(SETUP, 1, ctypes.create_string_buffer(120)))
attempt("io_uring_enter", served(lambda: syscall(ENTER, -1, 0, 0, 0, 0, 0)))
attempt("io_uring_register", served(lambda: syscall(REGISTER, -1, 0, 0, 0)))
attempt("read through a ring", read_through_a_ring)
