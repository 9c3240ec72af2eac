# The calls that change what is mounted where.
MOUNT, UMOUNT2, PIVOT_ROOT, CHROOT = 165, 166, 155, 161
OPEN_TREE, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT, FSPICK, MOUNT_SETATTR = (
    428, 429, 430, 431, 432, 433, 442,
)
OPEN_TREE_ATTR = 467
AT_FDCWD, MS_BIND, MS_REMOUNT = -100, 4096, 32
OPEN_TREE_CLONE = 1
HERE = ARGS["folder"].encode()

attempt("mount tmpfs", lambda: syscall(MOUNT, b"none", HERE, b"tmpfs", 0, b""))
attempt("mount proc", lambda: syscall(MOUNT, b"none", HERE, b"proc", 0, b""))
attempt("bind mount", lambda: syscall(MOUNT, b"/usr", HERE, b"", MS_BIND, b""))
attempt(
    "mount with high bits",
    served(lambda: syscall(MOUNT, b"none", HERE, b"tmpfs", 1 << 40, b"")),
)
attempt("umount", served(lambda: syscall(UMOUNT2, HERE, 0)))
attempt("detach", served(lambda: syscall(UMOUNT2, HERE, 2)))
attempt("pivot_root", served(lambda: syscall(PIVOT_ROOT, b"/nonexistent", b"/nonexistent")))
attempt("chroot", lambda: syscall(CHROOT, HERE))
attempt("open_tree", lambda: syscall(OPEN_TREE, AT_FDCWD, b"/usr", OPEN_TREE_CLONE))
attempt("move_mount", served(lambda: syscall(MOVE_MOUNT, -1, b"", AT_FDCWD, HERE, 4)))
attempt("fsopen", lambda: syscall(FSOPEN, b"tmpfs", 0))
attempt("fsconfig", served(lambda: syscall(FSCONFIG, -1, 0, 0, 0, 0)))
attempt("fsmount", served(lambda: syscall(FSMOUNT, -1, 0, 0)))
attempt("fspick", served(lambda: syscall(FSPICK, AT_FDCWD, b"/", 0)))
attempt(
    "mount_setattr",
    served(lambda: syscall(MOUNT_SETATTR, AT_FDCWD, b"/", 0, struct.pack("4Q", 0, 1, 0, 0), 32)),
)
