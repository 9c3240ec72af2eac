# A folder and a link change places all the time, without a moment in between.
import random

RENAMEAT2, AT_FDCWD, RENAME_EXCHANGE = 316, -100, 2
os.makedirs("d", exist_ok=True)
os.makedirs(ARGS["target"], exist_ok=True)
os.symlink(ARGS["target"], "link")
report("swapping", True)
while not os.path.exists("stop"):
    syscall(RENAMEAT2, AT_FDCWD, b"d", AT_FDCWD, b"link", RENAME_EXCHANGE)
    if random.random() < 0.2:
        time.sleep(random.random() / 200)
folder = "link" if os.path.islink("d") else "d"
report("counted", True, value=[len(os.listdir(folder)), len(os.listdir(ARGS["target"]))])
