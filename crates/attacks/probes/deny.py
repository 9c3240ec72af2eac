# Not a probe: runs a program in a world without some system calls. A seccomp filter answers them
# with ENOSYS, as an old kernel would.
calls = ARGS["without"]
filters = [struct.pack("HBBI", 0x20, 0, 0, 0)]
for number in calls:
    filters.append(struct.pack("HBBI", 0x15, 0, 1, number))
    filters.append(struct.pack("HBBI", 0x06, 0, 0, 0x00050000 | errno.ENOSYS))
for option in ARGS.get("without_prctl", []):
    filters.append(struct.pack("HBBI", 0x20, 0, 0, 0))
    filters.append(struct.pack("HBBI", 0x15, 0, 4, 157))
    filters.append(struct.pack("HBBI", 0x20, 0, 0, 16))
    filters.append(struct.pack("HBBI", 0x15, 0, 1, option))
    filters.append(struct.pack("HBBI", 0x06, 0, 0, 0x00050000 | errno.EINVAL))
    filters.append(struct.pack("HBBI", 0x20, 0, 0, 0))
filters.append(struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000))
code = ctypes.create_string_buffer(b"".join(filters))
program = struct.pack("HxxxxxxQ", len(filters), ctypes.addressof(code))
LIBC.prctl(38, 1, 0, 0, 0)
SECCOMP = 317
syscall(SECCOMP, 1, 0, program)
os.execv(ARGS["program"][0], ARGS["program"])
