# Starts processes or threads until it is refused or has enough. Bounded in number and in time.
import threading

MOST, SECONDS, HOLD = ARGS["most"], ARGS["seconds"], ARGS.get("hold", 0)
made = 0
error = None
children = []
if ARGS["kind"] == "threads":
    release = threading.Event()
    threading.stack_size(64 * 1024)
    try:
        for _ in range(MOST):
            threading.Thread(target=release.wait, args=(SECONDS,), daemon=True).start()
            made += 1
    except RuntimeError as refused:
        error = "EAGAIN" if "start new thread" in str(refused) else str(refused)
    if made == MOST:
        time.sleep(HOLD)
    release.set()
else:
    try:
        for _ in range(MOST):
            child = os.fork()
            if child == 0:
                signal.alarm(SECONDS)
                signal.pause()
                os._exit(0)
            children.append(child)
            made += 1
    except OSError as refused:
        error = name_of(refused)
    if made == MOST:
        time.sleep(HOLD)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
report("all of them", made == MOST, error, made)
