# Takes kernel objects until it is refused, then keeps them until its input ends.
import fcntl
import resource

INOTIFY_INIT1, TIMER_CREATE = 294, 222
kept = []


def descriptor(_):
    return os.open("/dev/null", os.O_RDONLY)


def inotify(_):
    return syscall(INOTIFY_INIT1, 0)


def lock(number):
    fcntl.lockf(lock_file, fcntl.LOCK_EX, 1, number * 2)


def timer(_):
    syscall(TIMER_CREATE, 1, 0, ctypes.byref(ctypes.c_int()))


def pipe(_):
    return os.pipe()


def terminal(_):
    return os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)


def until_refused(take, most):
    for number in range(most):
        try:
            kept.append(take(number))
        except OSError as refused:
            return number, name_of(refused)
    return most, None


hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
lock_file = os.open(ARGS["folder"] + "/locks", os.O_CREAT | os.O_RDWR)
TAKES = {"descriptors": descriptor, "inotify": inotify, "locks": lock, "timers": timer, "pipes": pipe, "terminals": terminal}
for kind, most in ARGS["kinds"].items():
    made, error = until_refused(TAKES[kind], most)
    report(kind, error is None, error, made)
    if kind == "descriptors":
        for file in kept:
            os.close(file)
        kept.clear()
report("holding", True)
sys.stdin.read()
