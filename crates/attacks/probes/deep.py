# A folder in a folder in a folder… Long chains are made one by one and hung below each other:
# what checks paths from the leaf up would make the straight way quadratic.
LEVELS, CHAIN = ARGS["levels"], 300
made = 0
error = None
os.chdir(ARGS["folder"])
start = os.open(".", os.O_RDONLY)
leaf = None


def chain(name):
    """Makes a chain of folders here, and returns its last one."""
    os.fchdir(start)
    os.mkdir(name)
    os.chdir(name)
    for _ in range(CHAIN - 1):
        os.mkdir("d")
        os.chdir("d")
    return os.open(".", os.O_RDONLY)


try:
    while made < LEVELS:
        name = "d" if leaf is None else "next"
        last = chain(name)
        if leaf is not None:
            os.rename("next", "d", src_dir_fd=start, dst_dir_fd=leaf)
            os.close(leaf)
        leaf = last
        made += CHAIN
except OSError as refused:
    error = name_of(refused)
report("levels", error is None, error, made)
