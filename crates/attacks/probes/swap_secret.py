# A file and a link to a secret change places all the time; so do a folder and a link to the
# folder of the secret. Whoever opens by name without care reads the secret.
RENAMEAT2, AT_FDCWD, RENAME_EXCHANGE = 316, -100, 2
os.makedirs("folder", exist_ok=True)
for path in ("file", "folder/secret"):
    with open(path, "w") as file:
        file.write("harmless")
os.symlink(ARGS["secret"], "to-file")
os.symlink(os.path.dirname(ARGS["secret"]), "to-folder")
report("swapping", True)
while True:
    syscall(RENAMEAT2, AT_FDCWD, b"file", AT_FDCWD, b"to-file", RENAME_EXCHANGE)
    syscall(RENAMEAT2, AT_FDCWD, b"folder", AT_FDCWD, b"to-folder", RENAME_EXCHANGE)
