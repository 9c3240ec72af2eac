# Reads files by path; each must hold the text that only the right file holds.
for target in ARGS["targets"]:
    def read(path=target["path"], text=target["text"]):
        with open(path, "rb") as file:
            return text.encode() in file.read(1 << 20)

    attempt(target["name"], read)
