# Attacks on the process that holds the sandbox together. The control aims at a child instead.
require_own_pid_namespace()
PTRACE, PROCESS_VM_READV, PIDFD_OPEN, PIDFD_GETFD, PIDFD_SEND_SIGNAL, KCMP = (
    101, 310, 434, 438, 424, 312,
)
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
IOPRIO_SET, PRLIMIT64, SCHED_SETATTR = 251, 302, 314
target = 1
victim = None
if ARGS.get("victim"):
    ready, own_group = os.pipe()
    victim = os.fork()
    if victim == 0:
        os.setsid()
        os.write(own_group, b"1")
        time.sleep(60)
        os._exit(0)
    # The attempts below may keep it from ever getting there.
    os.read(ready, 1)
    target = victim


def read(name):
    with open(f"/proc/{target}/{name}", "rb") as file:
        return len(file.read(64)) > 0


def memory():
    with open(f"/proc/{target}/maps") as maps:
        start = int(maps.readline().split("-")[0], 16)
    with open(f"/proc/{target}/mem", "rb", buffering=0) as file:
        file.seek(start)
        return len(file.read(16)) > 0


def vm_readv():
    buffer = ctypes.create_string_buffer(16)
    local = struct.pack("QQ", ctypes.addressof(buffer), 16)
    remote = struct.pack("QQ", ctypes.addressof(buffer), 16)
    return syscall(PROCESS_VM_READV, target, local, 1, remote, 1, 0) > 0


def steal(number):
    return syscall(PIDFD_GETFD, syscall(PIDFD_OPEN, target, 0), number, 0)


def within(seconds, happens):
    until = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def dies_of(number):
    os.kill(target, number)
    if victim is None:
        time.sleep(0.2)
        return False
    # By now it is the last to be scheduled, so on a busy machine this takes a while.
    return within(20, lambda: os.waitpid(victim, os.WNOHANG)[0] == victim)


def stops():
    def is_stopped():
        with open(f"/proc/{target}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] in "Tt"

    os.kill(target, signal.SIGSTOP)
    stopped = within(0.2 if victim is None else 20, is_stopped)
    os.kill(target, signal.SIGCONT)
    return stopped


def slow_group():
    group = os.getpgid(target)
    # One that is not in this namespace has no number here, and 0 is one's own.
    return group != 0 and os.setpriority(os.PRIO_PGRP, group, 19) is None


attempt("ptrace attach", lambda: syscall(PTRACE, PTRACE_ATTACH, target, 0, 0))
attempt("ptrace seize", lambda: syscall(PTRACE, PTRACE_SEIZE, target, 0, 0))
attempt("process_vm_readv", vm_readv)
attempt("read memory", memory)
attempt("open memory for writing", lambda: os.open(f"/proc/{target}/mem", os.O_RDWR))
attempt("read environment", lambda: os.open(f"/proc/{target}/environ", os.O_RDONLY))
attempt("read maps", lambda: read("maps"))
attempt("read auxv", lambda: read("auxv"))
attempt("list descriptors", lambda: len(os.listdir(f"/proc/{target}/fd")) > 0)
attempt("open a descriptor", lambda: os.open(f"/proc/{target}/fd/0", os.O_RDONLY))
attempt("resolve the program", lambda: os.readlink(f"/proc/{target}/exe"))
attempt("enter its root", lambda: os.listdir(f"/proc/{target}/root/"))
attempt("enter its folder", lambda: os.listdir(f"/proc/{target}/cwd/"))
attempt("open its namespaces", lambda: os.open(f"/proc/{target}/ns/mnt", os.O_RDONLY))
attempt("steal a descriptor", lambda: steal(0))
attempt("compare files", lambda: syscall(KCMP, target, os.getpid(), 0, 0, 0))
attempt("lower its priority", lambda: os.setpriority(os.PRIO_PROCESS, target, 19))
attempt("have it scheduled in batches", lambda: os.sched_setscheduler(target, os.SCHED_BATCH, os.sched_param(0)))
attempt("set its parameters", lambda: os.sched_setparam(target, os.sched_param(0)))
attempt("set its attributes", lambda: syscall(SCHED_SETATTR, target, struct.pack("IIQiIQQQ", 48, 3, 0, 19, 0, 0, 0, 0), 0))
attempt("have it scheduled when nobody else is", lambda: os.sched_setscheduler(target, os.SCHED_IDLE, os.sched_param(0)))
attempt("let it wait for the disk", lambda: syscall(IOPRIO_SET, 1, target, 3 << 13))
attempt("let everybody of its user wait for the disk", lambda: syscall(IOPRIO_SET, 3, os.getuid(), 3 << 13))
attempt("lower the priority of everybody of its user", lambda: os.setpriority(os.PRIO_USER, 0, 19))
attempt("the same by number", lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19))
attempt("lower the priority of its group", slow_group)
attempt("pin it to a processor", lambda: os.sched_setaffinity(target, {min(os.sched_getaffinity(0))}))
attempt("take its limits", lambda: syscall(PRLIMIT64, target, 7, struct.pack("QQ", 4, 4), 0))
attempt("choose it for the out-of-memory killer",
        lambda: os.write(os.open(f"/proc/{target}/oom_score_adj", os.O_WRONLY), b"1000"))
attempt("stop it", stops, fork=False)
if victim is None:
    # Sent to a first process, all of these must be without effect: were they not, the probe
    # would not reach its end.
    for number in list(range(1, 32)) + list(range(34, 65)):
        try:
            os.kill(1, number)
            syscall(PIDFD_SEND_SIGNAL, syscall(PIDFD_OPEN, 1, 0), number, 0, 0)
        except OSError:
            pass
attempt("kill it", lambda: dies_of(signal.SIGKILL), fork=False)
