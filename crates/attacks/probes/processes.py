# Looks for a process of the host: by its name, by its number, through every call that takes one.
PIDFD_OPEN, GETPGID, KCMP = 434, 121, 312


PID = ARGS["pid"]
attempt("find by name", by_name, fork=False)
attempt("its folder in /proc", lambda: os.path.exists(f"/proc/{PID}/status"))
attempt("signal 0", lambda: os.kill(PID, 0))
attempt("pidfd_open", lambda: syscall(PIDFD_OPEN, PID, 0))
attempt("getpgid", lambda: os.getpgid(PID))
attempt("getpriority", lambda: os.getpriority(os.PRIO_PROCESS, PID))
attempt("sched_getaffinity", lambda: len(os.sched_getaffinity(PID)))
visible = sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit())
# The prober's own process and those that hold the execution together.
report("more than its own", len(visible) > ARGS["own"], value=visible)
