# One file that is always where somebody is about to look: whenever it is opened, it moves on to
# the next folder, until there is a file `stop`.
INOTIFY_INIT1, INOTIFY_ADD_WATCH, IN_OPEN = 294, 254, 0x20
COUNT = ARGS["folders"]
for number in range(COUNT):
    os.mkdir(f"d{number:04}")
with open("d0000/file", "wb") as file:
    file.write(os.urandom(ARGS["bytes"]))
watch = syscall(INOTIFY_INIT1, 0)
syscall(INOTIFY_ADD_WATCH, watch, b"d0000/file", IN_OPEN)
report("waiting", True)
moves = 0
while moves < COUNT - 1 and not os.path.exists("stop"):
    if select.select([watch], [], [], 0.1)[0]:
        os.read(watch, 4096)
        os.rename(f"d{moves:04}/file", f"d{moves + 1:04}/file")
        moves += 1
report("moved", True, value=moves)
