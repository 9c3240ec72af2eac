# A folder in a folder in a folder…
made = 0
error = None
os.chdir(ARGS["folder"])
try:
    for _ in range(ARGS["levels"]):
        os.mkdir("d")
        os.chdir("d")
        made += 1
except OSError as refused:
    error = name_of(refused)
report("levels", error is None, error, made)
