# Asks for more than its share of the machine.
import resource

SCHED_SETATTR, IOPRIO_SET, MLOCKALL = 314, 251, 151
attempt("realtime", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("round robin", lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)))
attempt("deadline", lambda: syscall(SCHED_SETATTR, 0, struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 10**6, 10**7, 10**7), 0))
attempt("higher priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, -10))
attempt("realtime disk priority", lambda: syscall(IOPRIO_SET, 1, 0, (1 << 13) | 0))
attempt("never be chosen by the out-of-memory killer",
        lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000"))
for name in ("NPROC", "NOFILE", "AS", "MEMLOCK", "CORE", "MSGQUEUE", "SIGPENDING", "RTPRIO"):
    def higher(kind=getattr(resource, "RLIMIT_" + name, None)):
        soft, hard = resource.getrlimit(kind)
        if hard == resource.RLIM_INFINITY:
            raise OSError(errno.EALREADY, "unlimited already")
        resource.setrlimit(kind, (hard + 1, hard + 1))
        # A call may only pretend to succeed.
        return resource.getrlimit(kind)[1] == hard + 1

    if hasattr(resource, "RLIMIT_" + name):
        attempt("raise RLIMIT_" + name, higher)
