# Looks for objects that somebody else made.
SHMGET, SEMGET, MSGGET, SHMAT, MQ_OPEN = 29, 64, 68, 30, 240
KEY, NAME = ARGS["key"], ARGS["name"]
attempt("shared memory", lambda: syscall(SHMGET, KEY, 0, 0))
attempt("semaphores", lambda: syscall(SEMGET, KEY, 0, 0))
attempt("message queue", lambda: syscall(MSGGET, KEY, 0))
attempt("posix queue", lambda: syscall(MQ_OPEN, NAME.encode(), os.O_RDWR, 0, 0))
attempt("file in /dev/shm", lambda: os.path.exists("/dev/shm/" + NAME))
