# The classic fork bomb, with a fuse: every process ends by itself after a few seconds.
END = time.monotonic() + ARGS["seconds"]
signal.alarm(ARGS["seconds"] + 1)
report("lit", True)
while time.monotonic() < END:
    try:
        if os.fork() == 0:
            signal.alarm(ARGS["seconds"] + 1)
    except OSError:
        time.sleep(0.02)
if os.getpid() == ARGS.get("leader"):
    report("survived", True)
os._exit(0)
