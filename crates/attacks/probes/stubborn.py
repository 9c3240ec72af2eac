# Processes that do not want to end, in one of several ways. Bounded in number and in time.
for number in set(range(1, 65)) - {signal.SIGCHLD}:
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass

MARKER, WAY, SECONDS = ARGS["marker"], ARGS["way"], ARGS["seconds"]
END = time.monotonic() + SECONDS


def storm():
    """Every process starts another one and is gone; there is never the same one to catch."""
    for _ in range(8):
        if os.fork() == 0:
            steps = 0
            while time.monotonic() < END and steps < 20000:
                steps += 1
                try:
                    if os.fork() != 0:
                        os._exit(0)
                except BlockingIOError:
                    time.sleep(0.001)
                    continue
                if steps % 16 == 0 and os.fork() == 0:
                    become(MARKER, SECONDS)
            os._exit(0)


def churn():
    """The same without any that stay: there are never many of them."""
    for _ in range(8):
        if os.fork() == 0:
            while time.monotonic() < END:
                try:
                    if os.fork() != 0:
                        os._exit(0)
                except BlockingIOError:
                    time.sleep(0.001)
            os._exit(0)


def waiting_uninterruptibly():
    """A parent in vfork waits in state D for its child."""
    CLONE, CLONE_VFORK, SIGCHLD = 56, 0x4000, 17
    if os.fork() == 0:
        if syscall(CLONE, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) == 0:
            time.sleep(SECONDS)
            os._exit(0)
        os._exit(0)


report("running", True)
if WAY == "storm":
    storm()
elif WAY == "churn":
    churn()
elif WAY == "uninterruptible":
    waiting_uninterruptibly()
elif WAY == "daemons":
    for _ in range(20):
        daemonise(MARKER, SECONDS)
elif WAY == "stopped":
    for _ in range(5):
        child = os.fork()
        if child == 0:
            become(MARKER, SECONDS)
        time.sleep(0.1)
        os.kill(child, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)

report("begun", True)
if os.fork() == 0:
    become(MARKER, SECONDS)
while time.monotonic() < END:
    time.sleep(0.1)
