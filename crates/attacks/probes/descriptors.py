# Which descriptors were inherited, and where they lead.
def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return None


own = {n: link(f"/proc/self/fd/{n}") for n in range(1025)}
own = {n: target for n, target in own.items() if target}
infos = [n for n in range(1025) if os.path.exists(f"/proc/self/fdinfo/{n}")]
beyond = {str(n): target for n, target in own.items() if n > 2}

report("more than the standard streams", bool(beyond), value=beyond)
report("more in fdinfo", any(n > 2 for n in infos), value=infos)
report(
    "a descriptor on the host's folder",
    any(ARGS["marker"] in target for target in own.values()),
    value={str(n): target for n, target in own.items()},
)


def through_descriptors():
    for n in range(1025):
        for way in ("", "/..", "/../..", "/../../.."):
            path = f"/proc/self/fd/{n}{way}/{ARGS['marker']}"
            if os.path.exists(path):
                return path
    return False


attempt("the host's folder through a descriptor", through_descriptors)


def path_descriptors():
    """A standard stream must be a pipe, a socket, a terminal or /dev/null, never a host file."""
    harmless = ("pipe:", "socket:", "/dev/null", "/dev/pts/", "anon_inode:")
    strange = [t for n, t in own.items() if n <= 2 and not t.startswith(harmless)]
    return strange or False


report("a standard stream on a file", bool(path_descriptors()), value=path_descriptors())
