# Orphans by the thousand: whoever inherits them must reap them.
def states():
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    found.append(file.read().rsplit(")", 1)[1].split()[0])
            except OSError:
                pass
    return found


def orphans(count):
    """Says whether all of them could be made."""
    parent = os.fork()
    if parent == 0:
        try:
            for _ in range(count):
                if os.fork() == 0:
                    os._exit(0)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(parent, 0)[1] == 0


before = len(states())
batches = ARGS["count"] // ARGS["batch"]
for _ in range(10 * batches):
    if batches == 0:
        break
    if orphans(ARGS["batch"]):
        batches -= 1
    else:
        time.sleep(0.01)
report("storm", batches == 0, value=batches)
deadline = time.monotonic() + ARGS.get("patience", 5)
left = states()
while len(left) > before and time.monotonic() < deadline:
    time.sleep(0.05)
    left = states()
report("zombies stay", left.count("Z") > 0, value=left.count("Z"))
report("processes stay", len(left) > before, value=len(left) - before)

children = []
try:
    for _ in range(ARGS["batch"]):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        children.append(child)
    report("budget is back", True)
except BlockingIOError as error:
    report("budget is back", False, name_of(error), len(children))
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
