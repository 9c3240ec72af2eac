# System calls that a sandboxed program has no use for. Arguments are wrong on purpose wherever
# success would do harm: then it is enough that the kernel looked at them.
O_PATH_HANDLE = struct.pack("Ii", 0, 0)
PERF = struct.pack("IIQQQQQ", 1, 64, 0, 0, 0, 0, 1 << 5).ljust(64, b"\0")
KEYCTL_JOIN, KEYCTL_GET_ID, SESSION_KEYRING, PROCESS_KEYRING = 1, 0, -3, -2
CALLS = {
    "bpf map": (321, 0, struct.pack("IIII", 2, 4, 4, 1).ljust(72, b"\0"), 72),
    "perf_event_open": (298, PERF, 0, -1, -1, 0),
    "userfaultfd": (323, 0),
    "userfaultfd, user mode only": (323, 1),
    "keyctl session keyring": (250, KEYCTL_GET_ID, SESSION_KEYRING, 0),
    "keyctl join": (250, KEYCTL_JOIN, b"brig", 0),
    "add_key": (248, b"user", b"brig", b"secret", 6, PROCESS_KEYRING),
    "request_key": (249, b"user", b"brig-none", 0, 0),
    "kexec_load": (246, 0, 99999, 0, 0),
    "kexec_file_load": (320, -1, -1, 0, 0, 0),
    "init_module": (175, 0, 0, 0),
    "finit_module": (313, -1, b"", 0),
    "delete_module": (176, b"brig-none", 0),
    "name_to_handle_at": (303, -100, b"/usr", ctypes.create_string_buffer(O_PATH_HANDLE, 136), 0, 0),
    "open_by_handle_at": (304, -1, ctypes.create_string_buffer(O_PATH_HANDLE, 136), 0),
    "reboot": (169, 0, 0, 0, 0),
    "swapon": (167, b"/nonexistent", 0),
    "swapoff": (168, b"/nonexistent"),
    "acct": (163, b"/nonexistent"),
    "quotactl": (179, 0, b"/nonexistent", 0, 0),
    "settimeofday": (164, struct.pack("qq", 0, 1 << 40), 0),
    "clock_settime": (227, 0, struct.pack("qq", 0, 1 << 40)),
    "iopl": (172, 3),
    "ioperm": (173, 0, 1, 1),
    "syslog": (103, 10, 0, 0),
    "fanotify_init": (300, 0, 0),
    "personality with executable reads": (135, 0x0400000),
    "modify_ldt": (154, 1, 0, 0),
    "mbind": (237, 0, 0, 9, 0, 0, 0),
    "sethostname": (170, b"", 1000),
    "setdomainname": (171, b"", 1000),
    "vhangup": (153,),
    "lookup_dcookie": (212, 0, 0, 0),
}
for name, (number, *arguments) in CALLS.items():
    if not ARGS.get("only") or name in ARGS["only"]:
        attempt(name, served(lambda: syscall(number, *arguments)))
