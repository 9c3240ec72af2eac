# A FIFO of the host in a mounted folder, which a host program holds open.
FIFO = ARGS["fifo"]


def opened(flags, action):
    descriptor = os.open(FIFO, flags | os.O_NONBLOCK)
    try:
        return action(descriptor)
    finally:
        os.close(descriptor)


attempt("take what was written", lambda: opened(os.O_RDONLY, lambda fifo: os.read(fifo, 4) == b"host"))
attempt("write to it", lambda: opened(os.O_WRONLY, lambda fifo: os.write(fifo, b"from inside")))
attempt("open it both ways", lambda: opened(os.O_RDWR, lambda fifo: os.write(fifo, b"from inside")))
