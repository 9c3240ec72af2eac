# Which processors can be had, and whether more can be taken.
before = sorted(os.sched_getaffinity(0))


def widen():
    os.sched_setaffinity(0, range(os.cpu_count()))
    return len(os.sched_getaffinity(0)) > ARGS["cpus"]


attempt("more processors", widen)
report("processors", True, value=before)
