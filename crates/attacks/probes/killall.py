# kill(-1): everything this process may signal.
require_own_pid_namespace()
child = os.fork()
if child == 0:
    become(ARGS["marker"], 30)
time.sleep(0.1)
try:
    os.kill(-1, signal.SIGKILL)
except PermissionError:
    # Refused as a whole, where nothing else keeps it from the rest of the sandbox.
    os.kill(child, signal.SIGKILL)
_, status = os.waitpid(child, 0)
report("own child", os.WIFSIGNALED(status))
