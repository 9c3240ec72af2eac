# Not a probe: makes objects of every kind, says so, and removes them when its input ends.
SHMGET, SEMGET, MSGGET, SHMCTL, SEMCTL, MSGCTL = 29, 64, 68, 31, 66, 71
MQ_OPEN, MQ_UNLINK = 240, 241
KEY, CREATE, IPC_RMID = ARGS["key"], 0o1666, 0
name = ARGS["name"]
shm = syscall(SHMGET, KEY, 4096, CREATE)
sem = syscall(SEMGET, KEY, 1, CREATE)
msg = syscall(MSGGET, KEY, CREATE)
queue = syscall(MQ_OPEN, name.encode(), os.O_CREAT | os.O_RDWR, 0o666, 0)
with open("/dev/shm/" + name, "w") as file:
    file.write("shared")
report("made", True, value=[shm, sem, msg])
sys.stdin.read()
syscall(SHMCTL, shm, IPC_RMID, 0)
syscall(SEMCTL, sem, 0, IPC_RMID, 0)
syscall(MSGCTL, msg, IPC_RMID, 0)
syscall(MQ_UNLINK, name.encode())
os.unlink("/dev/shm/" + name)
report("removed", True)
