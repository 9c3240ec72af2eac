# Crashes, and looks for what is left of it.
import resource

os.chdir(ARGS["folder"])
if ARGS.get("unlimited"):
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
child = os.fork()
if child == 0:
    os.abort()
_, status = os.waitpid(child, 0)
report("dumped", os.WCOREDUMP(status), value=[name for name in os.listdir(".") if "core" in name])
# For a core that is piped to a program, zero is no limit; one is.
report("piped", resource.getrlimit(resource.RLIMIT_CORE)[1] != 1)
