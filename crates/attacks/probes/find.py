# Looks for a process of its own sandbox by its name.
def by_name():
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    if file.read().split(b"\0")[0] == ARGS["marker"].encode():
                        return int(entry)
            except OSError:
                pass
    return False


attempt("find by name", by_name, fork=False)
