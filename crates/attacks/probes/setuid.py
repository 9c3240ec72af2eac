# Runs a program that belongs to somebody else with the setuid bit or with file capabilities,
# and looks at what it became.
import subprocess


def status_of(pid):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def gained(program):
    before = status_of(os.getpid())
    if before["Uid"].split()[1] == "0" or int(before["CapEff"], 16):
        raise RuntimeError("privileged already")
    process = subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(40):
            time.sleep(0.025)
            if process.poll() is not None:
                break
            after = status_of(process.pid)
            if after["Uid"].split()[1] != before["Uid"].split()[1]:
                return "uid " + after["Uid"]
            if int(after["CapEff"], 16):
                return "capabilities " + after["CapEff"]
        return False
    finally:
        process.kill()
        process.wait()


for name, program in ARGS["programs"].items():
    attempt(name, lambda: gained(program), fork=False)


def held(field, harmless):
    value = status_of(os.getpid())[field]
    return value if value not in harmless else False


NONE = ("0000000000000000",)
for field in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    attempt(field, lambda: held(field, NONE), fork=False)
attempt("may gain privileges", lambda: held("NoNewPrivs", ("1",)), fork=False)
