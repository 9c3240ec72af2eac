# Looks for a file name in every folder that can be listed.
def found(roots, name):
    for root in roots:
        for folder, folders, files in os.walk(root):
            if folder == "/":
                folders[:] = [f for f in folders if f not in ("proc", "sys")]
            if name in files or name in folders:
                return os.path.join(folder, name)
    return False


attempt("find", lambda: found(ARGS["roots"], ARGS["name"]), fork=False)
